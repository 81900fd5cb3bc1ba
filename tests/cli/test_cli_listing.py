from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from cli_support import *  # noqa: F403
from cli_support import Command

from leakgauge.catalogue import CATALOGUE
from leakgauge.cli.output import stderr, stdout

ESCAPE = "\x1b["


def test_the_list_fits_a_screen_of_80_columns_and_no_name_is_broken(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = command("list").out
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 50
    words = set(text.replace(",", " ").split())
    assert [name for shelf in CATALOGUE.values() for name in shelf if name not in words] == []


def test_one_kind_is_listed_with_what_each_does_and_a_search_leaves_the_rest_out(command: Command) -> None:
    answer = command("list", "attacks", "--search", "span", "--json")
    assert {row["kind"] for row in answer.rows} == {"attacks"}
    names = {row["name"] for row in answer.rows}
    assert "span_matching" in names
    assert "dlg" not in names
    assert "Nothing has these words" in command("list", "attacks", "--search", "zebra").out


def test_all_of_a_part_is_shown_and_a_wrong_name_is_refused_with_the_right_one(command: Command) -> None:
    shown = command("show", "dpsgd").out
    assert "noise_multiplier = 1.0" in shown
    assert "leakgauge audit --defence none --defence dpsgd" in shown
    command("show", "dpsdg").refused("did you mean dpsgd")
    assert command("show", "mixup", "--json").rows[1]["kind"] == "schemes"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_what_each_attack_does_is_told_at_any_width_without_colour_in_a_pipe(
    width: int, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = command("list", "attacks").out
    assert max(map(len, text.splitlines())) <= width
    assert ESCAPE not in text
    names = set(text.split())
    assert [name for name in CATALOGUE["attacks"] if name not in names] == []


def test_no_color_is_respected_even_where_a_terminal_is_forced(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert ESCAPE in command("show", "best").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any(f"{ESCAPE}{colour}m" in command("show", "best").out for colour in (*range(30, 38), *range(90, 98)))


def test_a_shell_that_asks_is_told_the_commands_that_begin_so() -> None:
    asked = {"_LEAKGAUGE_COMPLETE": "complete_bash", "COMP_WORDS": "leakgauge au", "COMP_CWORD": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "leakgauge"], capture_output=True, text=True, check=True, env={**os.environ, **asked}
    )
    assert ran.stdout.split() == ["audit"]


def test_the_numbers_of_a_sentence_have_no_colour_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for made in (stdout(), stderr()):
        made.file = screen = io.StringIO()
        made.print("best:steps=250 found 4 of 4 in /tmp/folder")
        assert ESCAPE not in screen.getvalue()
        made.print("[bold]leaks[/]")
        assert ESCAPE in screen.getvalue()
