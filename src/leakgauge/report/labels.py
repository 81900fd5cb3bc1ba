"""Labels that came back: true beside restored counts, as charts for the page and as tables for the console."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from leakgauge.audit.record import Record
from leakgauge.audit.result import OF_LABELS, AuditResult, Finding, Measurement
from leakgauge.protocol.threat_model import Fact
from leakgauge.report.terminal import NOT_MEASURED, humanise

MOST_CLASSES = 40
"""More than these are not drawn or printed."""

NAMES = {
    "label_recall": "Labels restored",
    "label_existence": "Class presence right (LeAcc)",
    "label_counts": "Class counts right (LnAcc)",
}

_LONGEST_NAME = 12


class Bar(NamedTuple):
    """One class of a chart: its counts, None where the truth is not known."""

    name: str
    true: int | None
    restored: int


@dataclass(frozen=True)
class Chart:
    """Counts per class of one round, as upright bars in pairs; ``left_out`` says which classes are not among them."""

    title: str
    bars: tuple[Bar, ...]
    left_out: str
    height: int = 96
    gap: int = 5

    @property
    def highest(self) -> int:
        return max((max(bar.true or 0, bar.restored) for bar in self.bars), default=0) or 1

    @property
    def paired(self) -> bool:
        return any(bar.true is not None for bar in self.bars)

    @property
    def bar(self) -> int:
        """Width of a bar: the digits of its number fit above it."""
        return max(10, 6 * len(str(self.highest)) + 2)

    @property
    def slot(self) -> int:
        return (2 if self.paired else 1) * self.bar + self.gap

    @property
    def width(self) -> int:
        return self.slot * len(self.bars)

    @property
    def slanted(self) -> bool:
        """Whether the classes' names are too long to stand upright."""
        return any(len(bar.name) > 3 for bar in self.bars)

    @property
    def left(self) -> int:
        """Room beside the bars, for numbers and the beginnings of slanted names."""
        return 52 if self.slanted else 30

    @property
    def below(self) -> int:
        return 68 if self.slanted else 20

    @property
    def ticks(self) -> list[tuple[float, int]]:
        """Heights and numbers of a few whole counts."""
        stride = max(1, math.ceil(self.highest / 4))
        return [(self.top(count), count) for count in range(0, self.highest + 1, stride)]

    def top(self, count: int) -> float:
        """Where the bar of a count ends, from above."""
        return round(self.height * (1 - count / self.highest), 1)

    @property
    def words(self) -> str:
        """The chart as a sentence, for whoever cannot see it."""
        classes = [
            f"class {bar.name}: "
            + (f"{bar.restored} restored" if bar.true is None else f"{bar.true} true, {bar.restored} restored")
            for bar in self.bars
        ]
        return "Labels per class. " + "; ".join(classes) + "."


class Score(NamedTuple):
    """One metric in words: of the attack, its null, and a guess."""

    name: str
    attack: str
    null: str
    guess: str


class Figure(NamedTuple):
    """One defence under one attack that restored labels: its scores over all rounds, and a chart per round."""

    title: str
    attack: str
    scores: tuple[Score, ...]
    charts: tuple[Chart, ...]


def figures(result: AuditResult) -> list[Figure]:
    """For each row whose attack restored labels that it was not given, in the order of the rows."""
    names = [str(name) for name in result.description.get("class_names", ())]
    return [
        Figure(
            humanise(row.defence),
            row.attack,
            tuple(_score(name, found) for name in OF_LABELS if (found := row.measured(name)) is not None),
            tuple(
                chart(_round(result, record) if row.rounds > 1 else "", record, names)
                for record in row.records
                if record.restored_counts is not None
            ),
        )
        for row in result.rows
        if row.restored_labels
    ]


def chart(title: str, record: Record, names: Sequence[str] = ()) -> Chart:
    """All classes; of more than forty the commonest that occur."""
    restored = record.restored_counts or ()
    chosen = _chosen(record.true_counts, [restored])
    bars = [
        Bar(_name(one, names), None if record.true_counts is None else record.true_counts[one], restored[one])
        for one in chosen[:MOST_CLASSES]
    ]
    return Chart(title, tuple(bars), _left_out(len(restored), chosen))


def tables(result: AuditResult) -> RenderableType:
    """For each recorded round its classes with their counts, the scores of each method, and what was assumed."""
    rounds = sorted({record.round for row in result.rows for record in row.records})
    return Group(*(part for number in rounds for part in _of_round(result, number)))


def _of_round(result: AuditResult, number: int) -> Iterable[RenderableType]:
    found = [(row, record) for row in result.rows for record in row.records if record.round == number]
    yield Text(f"\n{_round(result, found[0][1])}", "bold")
    restored = {row.attack: record.restored_counts for row, record in found if record.restored_counts is not None}
    truth = next((record.true_counts for _, record in found), None)
    if restored:
        yield from _counts(truth, restored)
    if restored and truth is not None:
        yield _scores([(row, record) for row, record in found if record.restored_counts is not None])
    for row, record in found:
        if record.restored_counts is None:
            yield Text(f"{row.attack}: {record.reason}", "dim")
    yield Text(assumptions(found[0][1].ledger), "dim")


def assumptions(ledger: Sequence[Fact]) -> str:
    """The ledger in one sentence.

    >>> assumptions([Fact("model", True, ""), Fact("update", True, ""), Fact("labels", False, "")])
    'Assumed known: model, update; hidden: labels.'
    """
    known = ", ".join(fact.name for fact in ledger if fact.disclosed)
    hidden = ", ".join(fact.name for fact in ledger if not fact.disclosed)
    return f"Assumed known: {known}" + (f"; hidden: {hidden}." if hidden else ".")


def _counts(truth: tuple[int, ...] | None, restored: dict[str, tuple[int, ...]]) -> Iterable[RenderableType]:
    columns = {**({} if truth is None else {"true": truth}), **restored}
    classes = len(next(iter(columns.values())))
    chosen = [one for one in _chosen(truth, list(restored.values())) if any(column[one] for column in columns.values())]
    shown = sorted(chosen[:MOST_CLASSES])
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, show_footer=True)
    grid.add_column("class", "all", justify="right")
    for name, column in columns.items():
        grid.add_column(name, str(sum(column)), justify="right")
    for one in shown:
        grid.add_row(str(one), *(str(column[one]) for column in columns.values()))
    yield grid
    if len(shown) < len(chosen):
        yield Text(f"{len(chosen) - len(shown)} further classes are left out; --json has them.", "dim")
    elif len(chosen) < classes:
        yield Text(f"The other {classes - len(chosen)} of {classes} classes do not occur.", "dim")


def _scores(found: Sequence[tuple[Finding, Record]]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False)
    grid.add_column("method")
    for name in OF_LABELS:
        grid.add_column(NAMES[name].replace(" (", "\n("), justify="right")
    for row, record in found:
        null = next((one for one in row.nulls if one.round == record.round), None)
        cells = [_cell(name, record, null) for name in OF_LABELS]
        grid.add_row(row.attack, *cells)
    return grid


def _cell(name: str, record: Record, null: Record | None) -> Text:
    def mean(scores: Sequence[float]) -> float:
        return sum(scores) / len(scores) if scores else math.nan

    count = len(record.scores.get(name, ()))
    text = Text(_share(name, mean(record.scores.get(name, ())), count))
    text.append(f"\nguess {_share(name, record.label_guess.get(name, math.nan), count, expected=True)}", "dim")
    if null is not None:
        text.append(f"\nnull {_share(name, mean(null.scores.get(name, ())), count)}", "dim")
    return text


def _score(name: str, found: Measurement) -> Score:
    count = found.attack.count
    return Score(
        NAMES[name],
        _share(name, found.attack.mean, count),
        _share(name, found.null.mean, found.null.count),
        _share(name, found.guess, count, expected=True),
    )


def _share(name: str, mean: float, count: int, *, expected: bool = False) -> str:
    """Labels are counted; of classes there may be thousands."""
    if math.isnan(mean):
        return NOT_MEASURED
    if name == "label_recall":
        return f"{mean * count:.{1 if expected else 0}f} of {count}"
    return f"{100 * mean:.1f} %"


def _round(result: AuditResult, record: Record) -> str:
    files = result.description.get("files", ())
    return Path(files[record.round]).name if record.round < len(files) else f"Round {record.round + 1}"


def _name(number: int, names: Sequence[str]) -> str:
    name = names[number] if number < len(names) else str(number)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _chosen(truth: tuple[int, ...] | None, restored: Sequence[tuple[int, ...]]) -> list[int]:
    """The classes worth showing: all if they are few, or else those that occur, the commonest first."""
    columns = [*([] if truth is None else [truth]), *restored]
    every = range(len(columns[0]))
    if len(every) <= MOST_CLASSES:
        return list(every)
    occurring = [one for one in every if any(column[one] for column in columns)]
    return sorted(occurring, key=lambda one: ([-column[one] for column in columns], one))


def _left_out(classes: int, chosen: Sequence[int]) -> str:
    """Which classes a chart does not show."""
    rarer, absent = max(0, len(chosen) - MOST_CLASSES), classes - len(chosen)
    if not rarer and not absent:
        return ""
    parts = [f"{rarer} that occur less often"] if rarer else []
    parts += [f"{absent} that do not occur"] if absent else []
    return f"Of {classes} classes, {' and '.join(parts)} {'is' if rarer + absent == 1 else 'are'} left out."
