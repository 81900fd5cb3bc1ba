"""Charts that a browser draws by itself: restored labels beside the true ones, and how the loss of an attack fell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from leakgauge.audit.record import Record
from leakgauge.audit.result import AuditResult, Measurement
from leakgauge.catalogue import label_metrics
from leakgauge.metrics import Metric
from leakgauge.report.words import NOT_MEASURED, assumptions, humanise

MOST_CLASSES = 40
"""More than these are not drawn or printed."""

_LONGEST_NAME = 12
_NARROW = 330
"""Pixels of a phone beside its margins."""

_MOST_POINTS = 160


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
    tallest: int = 0

    @property
    def highest(self) -> int:
        return max(self.tallest, *(max(bar.true or 0, bar.restored) for bar in self.bars)) or 1

    @property
    def parts(self) -> list[Chart]:
        """The same on one scale in pieces that a phone has room for."""
        most = max(1, (_NARROW - self.left) // self.slot)
        pieces = [self.bars[start : start + most] for start in range(0, len(self.bars), most)]
        return [replace(self, bars=piece, tallest=self.highest) for piece in pieces]

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
    """One defence under one attack that restored labels: its scores over all rounds, and a chart per round.

    Redacted, it has no chart, as which classes occur is what was private.
    """

    title: str
    attack: str
    scores: tuple[Score, ...]
    charts: tuple[Chart, ...]
    knew: str


def figures(result: AuditResult, *, redacted: bool = False) -> list[Figure]:
    """For each row whose attack restored labels that it was not given, in the order of the rows."""
    names = [str(name) for name in result.description.get("class_names", ())]
    return [
        Figure(
            humanise(row.defence),
            row.attack,
            tuple(_score(found) for name in label_metrics() if (found := row.measured(name)) is not None),
            tuple(
                chart(round_name(result, record) if row.rounds > 1 else "", record, names)
                for record in row.records
                if record.restored_counts is not None and not redacted
            ),
            assumptions(row.assumptions) if row.assumptions else "",
        )
        for row in result.rows
        if row.restored_labels
    ]


def chart(title: str, record: Record, names: Sequence[str] = ()) -> Chart:
    """All classes; of more than forty the commonest that occur."""
    restored = record.restored_counts or ()
    chosen = choose_classes(record.true_counts, [restored])
    bars = [
        Bar(_name(one, names), None if record.true_counts is None else record.true_counts[one], restored[one])
        for one in chosen[:MOST_CLASSES]
    ]
    return Chart(title, tuple(bars), _left_out(len(restored), chosen))


def _score(found: Measurement) -> Score:
    metric, count = found.metric, found.attack.count
    return Score(
        metric.title,
        label_share(metric, found.attack.mean, count),
        label_share(metric, found.null.mean, found.null.count),
        label_share(metric, found.guess, count, expected=True),
    )


def label_share(metric: Metric, mean: float, count: int, *, expected: bool = False) -> str:
    """Labels are counted; of classes there may be thousands."""
    if math.isnan(mean):
        return NOT_MEASURED
    if metric.binary:
        return f"{mean * count:.{1 if expected else 0}f} of {count}"
    return f"{100 * mean:.1f} %"


def round_name(result: AuditResult, record: Record) -> str:
    files = result.description.get("files", ())
    return Path(files[record.round]).name if record.round < len(files) else f"Round {record.round + 1}"


def _name(number: int, names: Sequence[str]) -> str:
    name = names[number] if number < len(names) else str(number)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def choose_classes(truth: tuple[int, ...] | None, restored: Sequence[tuple[int, ...]]) -> list[int]:
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


class Mark(NamedTuple):
    """A labelled line across a chart."""

    place: float
    label: str


@dataclass(frozen=True)
class Axes:
    """Steps to the right, the loss upwards on a logarithmic scale, in a box of ``width`` by ``height``."""

    steps: int
    lowest: int
    highest: int
    width: int = 200
    height: int = 90

    @classmethod
    def around(cls, traces: Sequence[Tensor]) -> Axes:
        """The whole powers of ten that hold every positive loss of every trace, so that charts can be compared."""
        losses = [loss for trace in traces for loss in trace.tolist() if _drawable(loss)] or [1.0]
        lowest = math.floor(math.log10(min(losses)))
        return cls(max(map(len, traces), default=0), lowest, max(math.ceil(math.log10(max(losses))), lowest + 1))

    def points(self, trace: Tensor) -> str:
        """The trace as the ``points`` of an SVG polyline, thinned to what can be seen; undrawable losses are left out.

        >>> import torch
        >>> Axes(steps=3, lowest=-2, highest=0).points(torch.tensor([1.0, torch.nan, 0.01]))
        '0.0,0.0 200.0,90.0'
        """
        stride = max(1, -(-len(trace) // _MOST_POINTS))
        kept = sorted({*range(0, len(trace), stride), len(trace) - 1} - {-1})
        losses = trace.tolist()
        return " ".join(f"{self._x(i):.1f},{self._y(losses[i]):.1f}" for i in kept if _drawable(losses[i]))

    @property
    def ticks(self) -> list[Mark]:
        """The powers of ten, or as many of them as fit."""
        stride = max(1, -(-(self.highest - self.lowest) // 4))
        return [
            Mark(self._y(10.0**power), f"{10.0**power:g}") for power in range(self.lowest, self.highest + 1, stride)
        ]

    def _x(self, step: int) -> float:
        return self.width * step / max(self.steps - 1, 1)

    def _y(self, loss: float) -> float:
        return self.height * (self.highest - math.log10(loss)) / (self.highest - self.lowest)


def _drawable(loss: float) -> bool:
    return math.isfinite(loss) and loss > 0
