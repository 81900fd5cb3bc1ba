"""How much work the command line lets an attack do, and how it goes on after the process is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_support import *  # noqa: F403
from cli_support import Command, Words

import leakgauge
from leakgauge import write_round
from leakgauge.audit import resumption
from leakgauge.audit.record import Record
from leakgauge.audit.store import FolderStore
from leakgauge.progress import Tick

STOPPED = """
import os, signal, sys
from pathlib import Path
from leakgauge.audit.execute import execute
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.config import from_mapping
from leakgauge.plan_files import load_config

def watch(index, title, slot=0):
    def progress(tick):
        if tick.step == 30:
            os.kill(os.getpid(), signal.SIGKILL)
    return progress

prepared = prepare(from_mapping(AuditPlan, load_config(Path(sys.argv[1])), source="plan"))
execute(prepared, Path(sys.argv[2]), watch, snapshot_every=0.0)
"""


@pytest.fixture
def words() -> Words:
    """An audit of one gradient-matching attack, without a budget."""
    return (
        *("audit", "--dataset", "digits", "--model", "mlp:hidden=(8,)", "--train-steps", "2", "--batch-size", "1"),
        *("--attack", "inverting_gradients", "--defence", "none", "--nulls", "1", "--json", "--out", "out"),
    )


def records(folder: str = "out") -> list[Record]:
    store = FolderStore.open(Path(folder))
    found = [store.get(key) for key in store.runs()[-1]["keys"]]
    return [record for record in found if record is not None]


def test_the_steps_and_seconds_of_the_command_line_are_those_of_the_attack_and_in_the_report(
    command: Command, words: Words
) -> None:
    done = command(*words, "--steps", "4", "--seconds", "500")
    assert done.code == 0
    assert done.rows[0]["facts"]["steps"] == 4
    assert all("Budget(steps=4, seconds=500.0, clock='cpu', least=30)" in record.attack_repr for record in records())
    plan = json.loads(Path("out/plan.json").read_text())
    assert (plan["budget"], plan["steps"], plan["seconds"]) == (None, 4, 500.0)
    page = Path("out/index.html").read_text()
    assert "Budget(steps=4, seconds=500.0" in page
    assert "steps 4" in page


def test_an_attack_is_not_called_by_steps_that_it_was_not_given(command: Command, words: Words) -> None:
    named = [word.replace("inverting_gradients", "inverting_gradients:steps=900") for word in words]
    assert {row["attack"] for row in command(*named, "--steps", "4").rows} == {"inverting_gradients"}
    # Given again by name, they are those of the name.
    again = [word.replace("inverting_gradients", "inverting_gradients:steps=3") for word in words]
    (row,) = command(*again).rows
    assert (row["attack"], row["facts"]["steps"]) == ("inverting_gradients:steps=3", 3)


def test_seconds_end_an_attack_that_would_go_on(command: Command, words: Words) -> None:
    done = command(*words, "--seconds", "0.05")
    assert done.code == 0
    assert 0 < done.rows[0]["facts"]["steps"] < 4800
    assert all("Budget(steps=None, seconds=0.05" in record.attack_repr for record in records())


@pytest.mark.parametrize(
    ("file", "options", "budget"),
    [
        ({"budget": "quick", "steps": 3}, (), "steps=3, seconds=10.0"),
        ({"steps": 3}, (), "steps=3, seconds=None"),
        ({"budget": "quick", "steps": 3}, ("--steps", "2"), "steps=2, seconds=10.0"),
        ({"budget": "deep"}, ("--steps", "2"), "steps=2, seconds=600.0"),
        ({"seconds": 9}, ("--steps", "2"), "steps=2, seconds=9.0"),
        # A named budget on the command line is not cut short by the file, only by the command line itself.
        ({"steps": 1, "seconds": 7}, ("--budget", "deep", "--steps", "2"), "steps=2, seconds=600.0"),
        ({"steps": 1}, ("--budget", "standard", "--seconds", "0.02"), "steps=None, seconds=0.02"),
        ({"budget": "quick", "clock": "wall"}, ("--steps", "2"), "steps=2, seconds=10.0, clock='wall'"),
        (
            {"seconds": 5, "clock": "wall"},
            ("--seconds", "9", "--clock", "cpu", "--steps", "2"),
            "steps=2, seconds=9.0, clock='cpu'",
        ),
    ],
)
def test_a_plan_names_a_budget_and_the_command_line_overrides_it(
    command: Command, words: Words, file: dict[str, Any], options: Words, budget: str
) -> None:
    Path("plan.json").write_text(json.dumps(file))
    assert command("audit", "plan.json", *words[1:], *options).code == 0
    assert all(f"Budget({budget}" in record.attack_repr for record in records())


def test_a_budget_goes_to_each_attack_that_has_one(command: Command, words: Words) -> None:
    assert command(*words, "--attack", "linear_layer", "--budget", "quick", "--steps", "2").code == 0
    assert {record.attack: "seconds=10.0" in record.attack_repr for record in records()} == {
        "inverting_gradients": True,
        "linear_layer": False,
    }


def test_an_inversion_takes_the_same_options(command: Command, recorded: Any, mlp: str) -> None:
    write_round(Path("round.safetensors"), recorded)
    words = ("invert", "round.safetensors", "--model", mlp, "--attack", "quasi_newton")
    words += ("--no-explain", "--json", "--out", "out")
    assert command(*words, "--budget", "deep", "--steps", "2").rows[0]["facts"]["steps"] == 2
    assert "Budget(steps=2, seconds=600.0" in records()[0].attack_repr
    assert command(*words, "--seconds", "0.02").code == 0
    assert "Budget(steps=None, seconds=0.02" in records()[0].attack_repr
    command(*words, "--budget", "dep").refused("no budget 'dep'", "did you mean 'deep'")
    command(*words, "--seconds", "-1").refused("seconds > 0", "-1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "enormous"), ("no budget 'enormous'", "quick, standard, deep")),
        (("--seconds", "0"), ("seconds > 0", "0.0")),
        (("--seconds", "inf"), ("finite", "inf")),
        (("--seconds", "long"), ("'long'", "--seconds")),
        (("--budget", "quick", "--steps", "0"), ("steps >= 1", "0")),
        (("--seconds", "9", "--clock", "sun"), ("no clock 'sun'", "cpu or wall")),
        (("--steps", "9", "--clock", "wall"), ("counts seconds", "--seconds")),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_before_any_work(
    command: Command, words: Words, options: Words, message: Words
) -> None:
    command(*words, *options).refused(*message)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ({"budget": 5}, ("'budget'", "text")),
        ({"seconds": "long"}, ("'seconds'", "a number")),
        ({"budget": "quick", "clock": "sun"}, ("no clock 'sun'", "cpu or wall")),
        ({"budgets": "quick"}, ("did you mean 'budget'",)),
    ],
)
def test_a_budget_of_the_wrong_kind_in_a_plan_is_refused(
    command: Command, file: dict[str, Any], message: Words
) -> None:
    Path("plan.json").write_text(json.dumps(file))
    command("audit", "plan.json").refused(*message)


@pytest.mark.slow
def test_an_attack_that_is_killed_goes_on_and_ends_as_if_it_had_not_been(
    command: Command, words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*words, "--steps", "60")
    fresh = command(*words[:-3], "fresh", *words[-2:])
    path = os.pathsep.join((str(Path(leakgauge.__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    killed = subprocess.run(
        [sys.executable, "-c", STOPPED, "fresh/plan.json", "out"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (snapshot,) = Path("out/snapshots").iterdir()
    assert not records()
    restored: list[int] = []
    original = resumption._resume

    def watched(*arguments: Any) -> Any:
        search, before = original(*arguments)
        restored.append(search.steps)
        return search, before

    monkeypatch.setattr(resumption, "_resume", watched)
    done = command(*words)
    assert (done.code, done.rows) == (0, fresh.rows)
    assert restored == [30, 0]  # the case that was killed, and its null
    assert snapshot.name == f"{records()[0].key}.safetensors"
    assert not snapshot.parent.exists()


def test_an_interrupt_before_the_first_result_says_how_to_go_on_and_keeps_the_steps(
    command: Command, words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    from leakgauge.attacks.matching.search import Search

    original = Search.step

    def stopping(self: Search) -> Tick:
        if len(self.trace) == 5:
            raise KeyboardInterrupt
        return original(self)

    with monkeypatch.context() as patched:
        patched.setattr(Search, "step", stopping)
        stopped = command(*words, "--steps", "9")
    assert (stopped.code, stopped.out) == (130, "")
    assert "run the same command to resume" in stopped.err
    assert len(list(Path("out/snapshots").iterdir())) == 1
    assert command(*words, "--steps", "9").rows[0]["facts"]["steps"] == 9
