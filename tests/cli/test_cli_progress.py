from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from cli_support import *  # noqa: F403
from cli_support import Command, Words
from rich.console import Console

from leakgauge.attacks.base import Tick
from leakgauge.audit.case import Case
from leakgauge.report.progress import case_progress, training_progress


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


def shown(terminal: bool) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=160, color_system=None)
    with training_progress(console) as step:
        step(3, 7)
    cases = [some_case(), some_case(null=True)]
    with case_progress(console, cases) as progress_of:
        progress_of(0, cases[0])(Tick(5, 0.5, 0.25))
        progress_of(1, cases[1])(Tick(6, 0.6, 0.125))
    return screen.getvalue()


def test_a_terminal_shows_the_case_the_step_and_the_loss() -> None:
    text = shown(terminal=True)
    # A bar is drawn some times a second; what is certain to be seen is the last state.
    assert "training" in text
    assert "step 3/7" in text
    assert "done" in text


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
