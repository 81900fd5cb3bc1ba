"""What every command says alike: results, rows, JSON, refusals, and that it was stopped."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

from leakgauge.cli.exit_codes import ExitCode
from leakgauge.version import VERSION

if TYPE_CHECKING:
    from leakgauge.audit.result import AuditResult


P = ParamSpec("P")

_answers: ContextVar[TextIO | None] = ContextVar("answers", default=None)

_COMMANDS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")
"""All that is no letter but line breaks and tabs: control characters, and those that reverse the direction."""

_HEAVY = "leakgauge.catalogue"
"""Which brings all that takes seconds to import."""


@dataclass(frozen=True)
class Gate:
    """What ``--fail-above`` asks of a result; without limits, nothing."""

    limits: Mapping[str, float] = field(default_factory=dict)
    allow_inconclusive: bool = False


@dataclass(frozen=True)
class Said:
    """What a command adds to its result: keys of its JSON, or what it shows."""

    values: Mapping[str, Any]
    shown: tuple[RenderableType, ...]

    def and_(self, other: Said) -> Said:
        return Said({**self.values, **other.values}, (*self.shown, *other.shown))


def finish(
    result: AuditResult,
    out: Path | None,
    gate: Gate,
    as_json: bool,
    command: str,
    body: Callable[[AuditResult], RenderableType] | None = None,
    more: Said | None = None,
) -> None:
    """Print the result, its table or another ``body``, and what ``more`` there is to say; then let the exit code say
    whether it passes the gate."""
    from leakgauge.report.console import audit_tables
    from leakgauge.report.headline import headline
    from leakgauge.report.judgements import inconclusive_sentences
    from leakgauge.types import Outcome

    # A part of the rows can neither pass nor fail the whole.
    exceeded = result.exceeding(gate.limits) if result.complete else []
    unknown = inconclusive_sentences(result)
    if as_json:
        payload = result.to_json(command)
        files = {"files": list(result.description["files"])} if "files" in result.description else {}
        said = {"headline": list(headline(result)), "exceeded": exceeded, "inconclusive": unknown}
        print_json(**payload | files | said | (dict(more.values) if more else {}))
    else:
        console = stdout()
        first, *rest = headline(result)
        console.print(f"[bold]{escape(first)}[/]")
        for sentence in rest:
            console.print(escape(sentence))
        console.print((body or audit_tables)(result))
        for part in more.shown if more else ():
            console.print(part)
        if out is not None:
            print_path("Report", out / "index.html")
    for sentence in exceeded:
        stderr().print(f"[bold red]limit exceeded[/] {escape(sentence)}", soft_wrap=True)
    failed = bool(gate.limits) and bool(unknown) and result.complete and not gate.allow_inconclusive
    for sentence in unknown if failed else ():
        stderr().print(f"[bold yellow]inconclusive[/] {escape(sentence)}", soft_wrap=True)
    if not result.complete:
        exit_early()
    if exceeded:
        raise typer.Exit(ExitCode.EXCEEDED)
    broken = Counter(record.reason for record in result.records if record.outcome is Outcome.FAILED)
    tell_failures(broken)
    if failed or broken:
        raise typer.Exit(ExitCode.INCONCLUSIVE)


def tell_failures(reasons: Mapping[str, int]) -> None:
    """Why cases have no answer, each reason with how many it holds for."""
    for reason, cases in reasons.items():
        stderr().print(f"[bold yellow]failed[/] {cases} of the cases: {escape(reason)}", soft_wrap=True)


def print_rows(
    rows: list[dict[str, Any]], command: str, as_json: bool, seed: int | None = 0, *, heads: int = 0
) -> None:
    """A table of them, of which the first ``heads`` entries say what each is about; or their JSON."""
    if as_json:
        print_json(command, seed, rows)
        return
    from leakgauge.report.grids import FittedTable

    headings = list(rows[0]) if rows else []
    cells = [[Text(str(value)) for value in row.values()] for row in rows]
    stdout().print(FittedTable(headings, cells, heads=heads))


def print_json(command: str, seed: int | None, rows: list[dict[str, Any]], **more: Any) -> None:
    payload = {"command": command, "version": VERSION, "seed": seed, "rows": rows} | more
    answers().write(json.dumps(payload, allow_nan=False) + "\n")


def exit_early() -> NoReturn:
    sentence = "Stopped early; what had finished is kept. Run the same command to resume."
    stderr().print(f"[yellow]{sentence}[/]", soft_wrap=True)
    raise typer.Exit(ExitCode.STOPPED)


def refuse(sentence: str) -> NoReturn:
    stderr().print(f"[bold red]leakgauge:[/] {escape(' '.join(sentence.split()))}", soft_wrap=True)
    sys.exit(ExitCode.REFUSED)


class Screen(Console):
    """Shows what names and files hold, and obeys none of it: to a terminal some characters are commands."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def printable(text: str) -> str:
    """The text with a mark in the place of what would move the cursor, set a title or turn the order of letters.

    >>> printable("a\\x1b[2Jb")
    'a\ufffd[2Jb'
    """
    return _COMMANDS.sub("\ufffd", text)


def stderr() -> Screen:
    return Screen(stderr=True, highlight=False)


def stdout() -> Screen:
    """Where answers are shown; numbers in a sentence are not coloured, as none is more than the others."""
    return Screen(file=answers(), highlight=False)


def answers() -> TextIO:
    """Where the answer of a command goes, whatever else is printed meanwhile."""
    return _answers.get() or sys.stdout


@contextmanager
def answers_apart() -> Iterator[None]:
    """What a model of the user's own prints goes to stderr: whoever reads the answer reads nothing else."""
    before = _answers.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _answers.reset(before)


def loaded(command: Callable[P, None]) -> Callable[P, None]:
    """The command, which says that it is loading while what is heavy is imported: seconds in which nothing else is
    shown. It may call code of the user's own."""

    @wraps(command)
    def run(*args: P.args, **known: P.kwargs) -> None:
        console = stderr()
        if console.is_terminal and _HEAVY not in sys.modules:
            with console.status("loading"):
                importlib.import_module(_HEAVY)
        with answers_apart():
            command(*args, **known)

    return run


def print_path(what: str, path: Path) -> None:
    stdout().print(f"{what}: [bold]{escape(str(path.resolve()))}[/]", soft_wrap=True)
