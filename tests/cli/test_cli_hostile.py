"""Files, names and models that mean harm: nothing is obeyed, waited for, written elsewhere or taken for an answer."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_support import *  # noqa: F403
from cli_support import Command, Words

from leakgauge.cli.exit_codes import ExitCode

EVIL = "x\x1b]0;title\x07\x1b[2J\x9b31m\u202e"
"""Sets the title of a terminal, clears it, colours it, and turns the letters that follow around."""


def is_plain(text: str) -> bool:
    return not set(text) & set(EVIL) - {"x"} - set("]0;title[2J31m")


@pytest.fixture
def forged(command: Command, small: Words) -> Path:
    """The folder of an audit whose records and runs name what would be commands to a terminal."""
    assert command("audit", *small, "--out", "forged").code == 0
    with closing(sqlite3.connect("forged/audit.sqlite")) as connection, connection:
        for table, column, names in (("records", "body", ("attack", "defence", "reason")), ("runs", "description", ())):
            for row, text in connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                told = json.loads(text) | dict.fromkeys(names, EVIL)
                told |= {"attacks": [EVIL], "defences": [EVIL], "dataset": EVIL} if table == "runs" else {}
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (json.dumps(told), row))
    return Path("forged")


def test_what_a_store_holds_is_shown_and_not_obeyed(command: Command, forged: Path) -> None:
    shown = [
        command("report", forged),
        command("results", forged),
        command("results", forged, "--format", "csv"),
        command("status", forged),
        command("compare", forged, forged),
        command("list", "runs", "--out", forged),
    ]
    assert [answer.code for answer in shown] == [0] * len(shown)
    assert all(is_plain(answer.out + answer.err) for answer in shown)
    assert "�]0;title" in shown[0].out


@pytest.mark.parametrize("words", [("report",), ("audit",), ("status",), ("invert", "--model", "mlp"), ("bound",)])
def test_a_name_that_would_be_a_command_to_a_terminal_is_refused_in_letters(command: Command, words: Words) -> None:
    answer = command(*words, EVIL)
    answer.refused()
    assert is_plain(answer.err)


def test_columns_and_models_that_would_be_commands_to_a_terminal_are_told_in_letters(
    command: Command, small: Words, module
) -> None:
    Path("rows.csv").write_text(f"age{EVIL},label\n1,a\n2,b\n", "utf-8")
    answer = command("audit", "--dataset", "csv:file=rows.csv,label=nothing")
    answer.refused("no column 'nothing'")
    assert is_plain(answer.err)
    failing = module(f"def build():\n    raise ValueError({EVIL!r})\n")
    answer = command("audit", *small, "--model", f"{failing}:build")
    answer.refused("failed")
    assert is_plain(answer.err)


@pytest.mark.parametrize("raised", ["Own('gone')", "GeneratorExit"])
def test_whatever_a_model_raises_is_never_taken_for_an_answer(
    command: Command, small: Words, module, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raised: str
) -> None:
    """Python ends with 1 where nobody catches it, which would be an exceeded limit."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = f"from torch import nn\nclass Own(BaseException):\n    pass\ndef leave(*_):\n    raise {raised}\n"
    in_import = module(f"{own}leave()\n")
    in_call = module(f"{own}build = leave\n")
    in_forward = module(
        f"{own}class Leaving(nn.Linear):\n    forward = leave\n"
        "def build():\n    return nn.Sequential(nn.Flatten(), Leaving(64, 10))\n"
    )
    command("audit", *small, "--model", f"{in_import}:build").refused("cannot be imported")
    command("audit", *small, "--model", f"{in_call}:build").refused("failed")
    answer = command("audit", *small, "--model", f"{in_forward}:build")
    assert answer.code == ExitCode.CRASHED
    assert answer.err.count("\n") == 1
    assert "ended the program" in answer.err


PRINTING = """
from torch import nn


class Printing(nn.Linear):
    def forward(self, x):
        print("a word of the model")
        return super().forward(x)


def build():
    return nn.Sequential(nn.Flatten(), Printing(64, 10))
"""


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_what_a_model_prints_is_no_part_of_the_answer(command: Command, small: Words, module, jobs: str) -> None:
    answer = command("audit", *small, "--model", f"{module(PRINTING)}:build", "--json", "--jobs", jobs)
    assert (answer.code, len(answer.rows)) == (0, 1)
    assert "a word of the model" in answer.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("seed = 99999999999999999999999999", "seed of 26 digits"),
        (f'model = "mlp:hidden=({"8," * 100_000})"', "200009 characters"),
    ],
)
def test_a_plan_that_declares_what_nobody_could_compute_is_refused(command: Command, line: str, said: str) -> None:
    Path("plan.toml").write_text(f'dataset = "digits"\nattacks = ["linear_layer"]\n{line}\n')
    command("audit", "plan.toml").refused(said)


def test_noise_beyond_what_a_float_holds_is_no_crash(command: Command, small: Words) -> None:
    answer = command("audit", *small, "--defence", "gaussian_noise:std=1e200", "--json")
    assert answer.code == ExitCode.INCONCLUSIVE
    assert "infinite values" in answer.err


def test_records_of_one_round_about_different_examples_are_refused(command: Command, small: Words) -> None:
    """Each of them is whole; it is together that they are forged."""
    assert command("audit", *small, "--out", "out").code == 0
    with closing(sqlite3.connect("out/audit.sqlite")) as connection, connection:
        for key, text in connection.execute("SELECT key, body FROM records").fetchall():
            told = json.loads(text)
            if not told["null"]:
                told |= {"evidence": told["evidence"] * 2}
            connection.execute("UPDATE records SET body = ? WHERE key = ?", (json.dumps(told), key))
    for words in (("report", "out"), ("results", "out"), ("compare", "out", "out")):
        command(*words).refused("contradict each other")


def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(command: Command, mlp: str) -> None:
    os.mkfifo("round.safetensors")
    for words in (("invert",), ("labels",), ("explain",)):
        command(*words, "round.safetensors", "--model", mlp).refused("a pipe or a device")


@pytest.mark.parametrize(("name", "words"), [("models", "sweep"), ("trainings", "tradeoff")])
def test_no_folder_of_a_run_is_a_link_out_of_it(command: Command, tmp_path: Path, name: str, words: str) -> None:
    plan = {"dataset": "digits", "model": "mlp:hidden=(6,)", "train_steps": 1, "attacks": ["linear_layer"]}
    Path("plan.json").write_text(json.dumps(plan | ({"training_steps": 1} if words == "tradeoff" else {})))
    Path("out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (Path("out") / name).symlink_to(tmp_path / "elsewhere")
    answer = command(words, "plan.json", "--out", "out")
    assert answer.code != 0
    assert not list((tmp_path / "elsewhere").iterdir())
