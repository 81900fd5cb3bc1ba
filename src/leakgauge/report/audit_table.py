"""The rows of an audit on a console: a heading for each defence, a line for each attack on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leakgauge.audit.result import AuditResult, Finding
from leakgauge.audit.verdict import Verdict
from leakgauge.catalogue import METRICS, describe_metric
from leakgauge.metrics import Kind, LabelRecall, Metric
from leakgauge.report.judgements import describe_crowd, show_leaked, show_strength
from leakgauge.report.words import (
    NOT_MEASURED,
    count_restored,
    has_run,
    humanise,
    label_recall,
    labels_only,
    list_unrun,
    noun,
    percent,
    show_hits,
    show_restored,
    space_of,
    standing,
    unrelated,
)
from leakgauge.space import InputSpace

WIDEST = 120
"""Of a wider console the rest stays empty: a line would be hard to follow."""

DIGITS = 2
"""Of a score, as many as a narrow table has room for."""

COLOURS = {
    Verdict.CERTIFIED: "bold red",
    Verdict.LEAKS: "bold red",
    Verdict.LEAKS_PARTLY: "bold yellow",
    Verdict.INCONCLUSIVE: "bold magenta",
    Verdict.NO_LEAK_FOUND: "bold green",
    Verdict.NOT_JUDGED: "dim",
}

_GAP, _INDENT = 2, 2
_NARROWEST = 13
"""Of the names: "no leak found" stands below each of them."""

_MOST_LINES = 3
"""A name that would need more is shortened, and told in full below the table."""


@dataclass(frozen=True)
class AuditTable:
    """Each number above its null, and each attack's verdict below its name; nothing is cut.

    Where a console is too narrow for numbers side by side, they follow one another.
    """

    result: AuditResult

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        rows, width = list(filter(has_run, self.result.rows)), min(WIDEST, options.max_width)
        columns = [_Column.of(heading, cell, rows) for heading, cell in _columns(rows)]
        room = width - _INDENT - sum(_GAP + one.width for one in columns)
        names = _Names.of([row.attack for row in rows], [standing(row)[0] for row in rows], room, width)
        narrow = room < -_INDENT
        if rows and not narrow:
            yield _heading(columns, names)
        for defence in dict.fromkeys(row.defence for row in rows):
            yield Text(f"\n{humanise(defence)}", "bold")
            for row in rows:
                if row.defence == defence:
                    yield _in_a_row(row, columns) if narrow else _line(row, columns, names)
        missing = _not_measured(rows, space_of(self.result.rows))
        below = [*_terms(self.result, columns, rows), *missing, *filter(None, [describe_crowd(self.result)])]
        below += [*names.legend(), *list_unrun(self.result)]
        if below:
            yield Text("\n" + "\n".join(below), "dim")


def audit_table(result: AuditResult) -> RenderableType:
    """The rows of an audit, for any console."""
    return AuditTable(result)


def not_measured() -> Text:
    return Text(NOT_MEASURED.replace(" ", "\n"), "dim")


@dataclass(frozen=True)
class _Column:
    """One number of each row, as wide as the widest needs."""

    heading: str
    cell: Callable[[Finding], Text]
    width: int

    @classmethod
    def of(cls, heading: str, cell: Callable[[Finding], Text], rows: Iterable[Finding]) -> _Column:
        texts = [heading, *(cell(row).plain for row in rows)]
        return cls(heading, cell, max(len(line) for text in texts for line in text.split("\n")))


@dataclass(frozen=True)
class _Names:
    """Attacks as there is room to call them: broken between words, and numbered where they are too long for that.

    Where the numbers leave no room beside them, names stand above: their ``width`` is then 0.
    """

    width: int
    shown: dict[str, str]

    @classmethod
    def of(cls, attacks: Sequence[str], verdicts: Sequence[str], room: int, width: int) -> _Names:
        beside = room >= _NARROWEST
        room = room if beside else width - _INDENT
        shown = {name: fold(name, room) for name in attacks}
        long = [name for name in shown if shown[name].count("\n") >= _MOST_LINES]
        for number, name in enumerate(long, start=1):
            first = re.split(r"\W", name, maxsplit=1)[0]
            shown[name] = fold(f"{first} [{number}]", room)
        own = (len(line) for name in shown.values() for line in name.split("\n"))
        widest = max((*own, *(min(room, len(words)) for words in verdicts)), default=0)
        return cls(max(widest, _NARROWEST) if beside else 0, shown)

    def legend(self) -> list[str]:
        """What the numbers stand for."""
        short = [(name, shown) for name, shown in self.shown.items() if name != shown.replace("\n", "")]
        return [f"{shown[shown.rindex('[') :]} {name}" for name, shown in short]


def fold(name: str, width: int) -> str:
    """Over as many lines as it takes, broken after a sign that separates words.

    >>> fold("quasi_newton_smooth", 14).splitlines()
    ['quasi_newton_', 'smooth']
    """
    lines = [""]
    for word in re.findall(r"[^_:,+(= ]*[_:,+(= ]?", name):
        if len(lines[-1]) + len(word) > width and lines[-1]:
            lines.append("")
        lines[-1] += word
        while len(lines[-1]) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return "\n".join(lines)


def _heading(columns: Sequence[_Column], names: _Names) -> RenderableType:
    cells = [Text(column.heading, "bold") for column in columns]
    total = names.width + sum(column.width + _GAP for column in columns)
    return _indented(_cells(Text("attack", "bold"), cells, columns, names), Text("─" * total, "dim"))


def _line(row: Finding, columns: Sequence[_Column], names: _Names) -> RenderableType:
    words, verdict = standing(row)
    name = Text(names.shown[row.attack]).append("\n" if names.width else ": ").append(words, COLOURS[verdict])
    return _indented(_cells(name, [column.cell(row) for column in columns], columns, names))


def _cells(name: Text, cells: Sequence[Text], columns: Sequence[_Column], names: _Names) -> RenderableType:
    grid = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
    if names.width:
        grid.add_column(width=names.width)
    for column in columns:
        grid.add_column(width=column.width, justify="right")
    grid.add_row(*([name] if names.width else []), *cells)
    return grid if names.width else Group(name, _indented(grid))


def _indented(*parts: RenderableType) -> RenderableType:
    return Padding(Group(*parts), (0, 0, 0, _INDENT), expand=False)


def _in_a_row(row: Finding, columns: Sequence[_Column]) -> RenderableType:
    """The attack, its verdict, and its numbers one after another."""
    words, verdict = standing(row)
    cells = (f"{column.heading} {column.cell(row).plain}".replace("\n", " ") for column in columns)
    return _indented(Text.assemble(f"{row.attack}: ", (words, COLOURS[verdict]), "; ", "; ".join(cells)))


def _columns(rows: Sequence[Finding]) -> Iterator[tuple[str, Callable[[Finding], Text]]]:
    """Those in which any row has something to say."""
    if any(row.judgement.p for row in rows):
        yield "leaked", _leaked
    for metric in _standard():
        if any(row.measured(metric.name) for row in rows):
            yield metric.heading, partial(_score, metric)
    if any(map(label_recall, rows)):
        yield LabelRecall.heading, _labels
    yield "time", _seconds


def _standard() -> list[Metric]:
    """The metrics of inputs that a narrow table has room for."""
    described = [describe_metric(name) for name, metric in METRICS.items() if metric.standard and metric.heading]
    return [metric for metric in described if metric.serves is not Kind.LABELS]


def _not_measured(rows: Sequence[Finding], space: InputSpace) -> list[str]:
    """What has no column, because no row has a number of it."""
    if not rows or all(map(labels_only, rows)):
        return []
    could = [metric for metric in _standard() if metric.serves.fits(space) and not metric.lacks]
    missing = [] if any(row.judgement.p for row in rows) else ["what leaked"]
    missing += [metric.title for metric in could if not any(row.measured(metric.name) for row in rows)]
    return [f"Not measured: {', '.join(missing)}."] if missing else []


def _terms(result: AuditResult, columns: Sequence[_Column], rows: Sequence[Finding]) -> list[str]:
    """What the small words below a number mean, of those that are there."""
    cells = " ".join(column.cell(row).plain for column in columns for row in rows).split()
    words = {
        "worst": f"worst: the {noun(result.rows)} that leaked most",
        "null": f"null: the same attack on {unrelated(result)}",
    }
    said = [meaning for word, meaning in words.items() if word in cells]
    return [f"{'; '.join(said)}."] if said else []


def _leaked(row: Finding) -> Text:
    """How many leaked, above how surely: of the weakest leak, or else of the strongest that was seen."""
    if not row.judgement.p:
        return not_measured()
    return Text(show_leaked(row).replace(" of ", "/")).append(f"\n{show_strength(row)}", "dim")


def _score(metric: Metric, row: Finding) -> Text:
    """The mean above its null and the example that leaked most; of what is counted, the number above its interval."""
    if (measurement := row.measured(metric.name)) is None:
        return not_measured()
    seen, null = measurement.attack, measurement.null
    if metric.binary:
        return Text(show_hits(seen).replace(" of ", "/")).append(f"\n{percent(seen.low, seen.high)}", "dim")

    def bare(score: float) -> str:
        return metric.show(score, digits=DIGITS).removesuffix(f" {metric.unit}")

    text = Text(metric.show(seen.mean, digits=DIGITS))
    if null.count:
        text.append(f"\nnull {bare(null.mean)}", "dim")
    return text.append(f"\nworst {bare(seen.worst)}", "dim") if seen.count > 1 else text


def _labels(row: Finding) -> Text:
    if label_recall(row) is None:
        return Text("given", "dim") if row.labels_given else not_measured()
    return Text(show_restored(row).replace(" of ", "/")).append(f"\nguess {count_restored(row, guess=True):.1f}", "dim")


def _seconds(row: Finding) -> Text:
    return Text(f"{row.seconds:.0f} s" if row.seconds >= 10 else f"{row.seconds:.1f} s")
