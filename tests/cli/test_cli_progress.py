from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cli_support import *  # noqa: F403
from cli_support import Command, Words
from rich.console import Console
from torch import nn

from leakgauge.attacks.adaptive import Adaptive
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.recipes.best import Best
from leakgauge.audit.case import Case
from leakgauge.audit.execute import execute, load_result
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.catalogue import standard_metrics
from leakgauge.cli import app, output
from leakgauge.encodings import InsideDataset, SeededKeys, encrypt
from leakgauge.progress import Tick
from leakgauge.randomness import seeded
from leakgauge.report.progress import Forecast, Pace, case_progress, describe_tick, training_progress
from leakgauge.risk.vetting import vet
from leakgauge.types import Batch


def some_case(**changes: Any) -> Case:
    values: dict[str, Any] = {
        "round": 0,
        "defence": "pruning",
        "attack_name": "quasi_newton",
        "attack": None,
        "null": False,
        "source": None,
        "truth": None,
        "distractors": None,
        "ledger": (),
        "seed": 0,
    }
    return Case(**(values | changes))


class Clock:
    """Time that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(terminal: bool) -> str:
    screen, clock = io.StringIO(), Clock()
    console = Console(file=screen, force_terminal=terminal, width=160, color_system=None)
    with training_progress(console) as step:
        step(Tick(3, 0.5))
    cases = [some_case(), some_case(null=True)]
    with case_progress(console, cases, clock) as watch:
        watch(0, cases[0].title)(Tick(5, 0.5, 0.25))
        tick = watch(1, cases[1].title)
        tick(Tick(6, 0.1, 0.125))
        clock.now += 2
        tick(Tick(75, 0.3, 0.00123))
    return screen.getvalue()


def test_a_terminal_shows_the_case_the_step_and_the_loss() -> None:
    text = shown(terminal=True)
    # A bar is drawn some times a second; what is certain to be seen is the last state.
    assert "training" in text
    assert "step 3" in text
    assert "done" in text
    assert "step 75, 34.5 steps/s, loss 1.2e-03" in text
    assert "0:07 left" in text


def paced(*ticks: tuple[float, Tick], began: float = 0.0) -> Pace:
    pace = Pace(began)
    for now, tick in ticks:
        pace.tick(now, tick)
    return pace


def test_the_speed_is_that_of_the_steps_since_the_first() -> None:
    pace = paced((50.0, Tick(10, 0.1, 1.0)), (52.0, Tick(11, 0.11, 0.5)))
    assert pace.steps_per_second == 0.5
    assert describe_tick(Tick(11, 0.11, 0.5), pace) == "step 11, 2.0 s/step, loss 5.0e-01"
    assert describe_tick(Tick(10, 0.1, 1.0), paced((50.0, Tick(10, 0.1, 1.0)))) == "step 10, loss 1.0e+00"


def test_the_time_left_goes_by_the_share_of_the_budget_whatever_its_unit() -> None:
    # Sixty seconds, of which the steps made say nothing: they get slower.
    by_seconds = paced((6.0, Tick(100, 0.1, 1.0)), (30.0, Tick(150, 0.5, 1.0)))
    assert by_seconds.left == pytest.approx(30)
    assert by_seconds.total == pytest.approx(66)  # six seconds until the first step, then sixty
    by_steps = paced((0.0, Tick(0, 0.0, 1.0)), (30.0, Tick(150, 0.25, 1.0)))
    assert by_steps.left == pytest.approx(90)
    assert paced((6.0, Tick(1, 0.1, 1.0)), (9.0, Tick(2, 1.0, 1.0))).left == 0


def test_an_attack_that_was_resumed_is_timed_from_where_it_went_on() -> None:
    # Nine tenths were done by another process; what counts is how this one gets on.
    pace = paced((1.0, Tick(901, 0.901, 1.0)), (2.0, Tick(911, 0.911, 1.0)), began=0.0)
    assert pace.left == pytest.approx(8.9)
    assert pace.total == pytest.approx(101)


def test_the_time_left_is_not_known_before_there_is_something_to_go_by() -> None:
    assert paced().left is None
    assert paced((1.0, Tick(1, 0.1, 1.0))).left is None
    assert paced((1.0, Tick(1, 0.1, 1.0)), (2.0, Tick(1, 0.1, 1.0))).total is None
    assert Forecast(["a"]).left is None


def test_the_time_left_of_all_counts_cases_to_come_by_what_their_attack_took() -> None:
    forecast = Forecast(["exact", "long", "exact", "long", "other"])
    forecast.start(0, 0.0)
    pace = forecast.start(1, 2.0)  # the exact one took two seconds, and made no ticks
    assert forecast.left is None
    pace.tick(2.0, Tick(0, 0.0, 1.0))
    pace.tick(12.0, Tick(10, 0.25, 1.0))
    # Thirty for the rest of this, two, forty for the next of its kind, and the average of both kinds for the unknown.
    assert forecast.left == pytest.approx(30 + 2 + 40 + 21)
    pace = forecast.start(3, 42.0)  # the third was in the store
    pace.tick(42.0, Tick(0, 0.0, 1.0))
    pace.tick(52.0, Tick(10, 0.5, 1.0))
    assert forecast.left == pytest.approx(10 + 21)


def test_cases_side_by_side_share_the_time_left() -> None:
    forecast = Forecast(["long", "long", "long", "long"])
    first, second = forecast.start(0, 0.0, 0), forecast.start(1, 0.0, 1)
    first.tick(0.0, Tick(0, 0.0, 1.0))
    first.tick(10.0, Tick(10, 0.5, 1.0))
    # Ten for the first, twenty for each other, by two at a time.
    assert forecast.left == pytest.approx((10 + 20 + 20 + 20) / 2)
    assert forecast.done == pytest.approx(0.5)
    second.tick(10.0, Tick(1, 0.25, 1.0))
    forecast.start(2, 20.0, 0)
    assert forecast.done == pytest.approx(1.25)


def test_the_time_left_of_attacks_with_seconds_is_told_before_their_first_step_ends() -> None:
    forecast = Forecast(["best", "exact", "best"], [60.0, None, 60.0])
    forecast.start(0, 0.0)
    assert forecast.left == pytest.approx(60 + 60 + 60)
    screen = io.StringIO()
    cases = [some_case(attack=Adaptive(Best(Budget(seconds=83.6))))]
    with case_progress(
        Console(file=screen, force_terminal=True, width=160, color_system=None), cases, Clock()
    ) as watch:
        watch(0, cases[0].title)
    assert "1:24 left" in screen.getvalue()


def test_the_bars_survive_a_case_without_a_single_tick() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    cases = [some_case(), some_case(null=True)]
    with case_progress(console, cases, Clock()) as watch:
        watch(0, cases[0].title)
        watch(1, cases[1].title)(Tick(1, 1.0, float("nan")))


def test_a_log_file_gets_no_bars_and_no_blank_lines() -> None:
    assert shown(terminal=False) == ""


def test_stderr_of_a_clean_run_is_empty(command: Command, small: Words, tmp_path: Path) -> None:
    answer = command("audit", *small, "--out", tmp_path / "out")
    assert (answer.code, answer.err) == (0, "")


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_outlives_an_error_inside(terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal)
    with pytest.raises(ValueError, match="inside"), training_progress(console):
        raise ValueError("inside")
    with training_progress(console):
        pass


def told_by(work: Callable[[Callable[[Tick], None]], object]) -> list[float]:
    """How far a piece of work said that it was."""
    ticks: list[Tick] = []
    work(ticks.append)
    assert [tick.step for tick in ticks] == sorted(tick.step for tick in ticks)
    return [tick.fraction for tick in ticks]


def test_what_is_prepared_read_vetted_or_encrypted_says_how_far_it_is(tmp_path: Path) -> None:
    short = {"train_steps": 0, "batch_size": 1, "steps": 1, "nulls": 1}
    named = {"model": "mlp:hidden=(8,)", "attacks": ("linear_layer",), "defences": ("none",)}
    prepared = prepare(AuditPlan("digits", **named, **short))
    assert told_by(prepared.keys) == [0.5, 1.0]
    execute(prepared, tmp_path)
    read = told_by(lambda progress: load_result(tmp_path, standard_metrics(), progress))
    assert read == pytest.approx([1 / 3, 2 / 3])  # the page is what is left
    checks = told_by(lambda progress: vet(nn.Linear(4, 3), input_shape=(4,), progress=progress))
    assert checks == sorted(checks)
    assert checks[-1] == 1.0
    images = Batch(torch.rand(4, 1, 8, 8), torch.arange(4) % 2)
    keys = SeededKeys(seeded(0, "keys"))
    assert told_by(lambda progress: encrypt(InsideDataset(2), images, classes=2, keys=keys, progress=progress)) == [1.0]


def test_a_terminal_is_told_that_a_command_is_loading_before_what_is_heavy_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for terminal in (True, False):
        screen = io.StringIO()
        seen: list[str] = []
        console = Console(file=screen, force_terminal=terminal, width=80)
        monkeypatch.setattr(output, "stderr", lambda console=console: console)
        monkeypatch.setattr(output, "_HEAVY", "never.imported.yet")
        monkeypatch.setattr(output, "importlib", SimpleNamespace(import_module=seen.append))
        output.loaded(seen.append)("ran")
        assert ("loading" in screen.getvalue()) is terminal
        assert seen == (["never.imported.yet", "ran"] if terminal else ["ran"])


def test_every_command_says_that_it_is_loading() -> None:
    commands = [*app.registered_commands, *(one for group in app.registered_groups for one in _commands_of(group))]
    assert len(commands) > 20
    assert [one.callback.__name__ for one in commands if not hasattr(one.callback, "__wrapped__")] == []


def _commands_of(group: Any) -> list[Any]:
    return list(group.typer_instance.registered_commands)
