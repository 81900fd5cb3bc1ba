"""The table itself: what each defence costs beside what it lets through, which are worth having, which is cheapest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leakgauge.audit.result import UNDEFENDED, Finding, Measurement
from leakgauge.audit.verdict import Power, Verdict
from leakgauge.bounds import Bound
from leakgauge.metrics import Identification, Kind, Summary
from leakgauge.tradeoff.batch_rule import BatchRule
from leakgauge.tradeoff.plan import Condition
from leakgauge.training.run import Trained
from leakgauge.version import VERSION


@dataclass(frozen=True)
class Cell:
    """One defence under one condition: the leakiest of the attacks, beside its own null.

    ``scores`` are those of the single images, in an order that all cells of a condition share; ``control`` is how many
    other images the same attack found of undefended clients, None where none is in the plan.
    """

    attack: str
    verdict: Verdict
    measurements: Mapping[str, Measurement]
    seconds: float
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    control: Power | None = None

    @classmethod
    def of(cls, row: Finding) -> Cell:
        found = {name: one for name, one in row.measurements.items() if one.metric.serves is not Kind.LABELS}
        scores = {name: tuple(score for one in row.records for score in one.scores.get(name, ())) for name in found}
        return cls(row.attack, row.verdict, found, row.seconds, scores, row.power)

    def measured(self, metric: str) -> Measurement | None:
        """What a metric found; None where it was not measured."""
        found = self.measurements.get(metric)
        return found if found is not None and found.measured else None


@dataclass(frozen=True)
class TradeoffRow:
    """One defence: its utility, and its leakage under each condition; None or absent = not measured.

    ``refused`` says under which conditions no client can run it, such as mixing four images of a batch of one, and why;
    ``untrained`` why it could not be trained with. ``bounds`` is the most that any attacker could find in one round,
    ``over_training`` in all rounds of the training that an example takes part in, whatever the order of the batches.
    """

    defence: str
    utility: Trained | None
    cells: Mapping[Condition, Cell]
    refused: Mapping[Condition, str] = field(default_factory=dict)
    untrained: str | None = None
    bounds: Mapping[Condition, Bound] = field(default_factory=dict)
    over_training: Bound | None = None

    @property
    def accuracy(self) -> Summary | None:
        return None if self.utility is None or self.utility.accuracy.count == 0 else self.utility.accuracy

    @property
    def overhead(self) -> float:
        """Time per step against undefended steps; infinite if not measured, so that it wins no tie."""
        median = math.nan if self.utility is None else self.utility.overhead.median
        return math.inf if math.isnan(median) else median


@dataclass(frozen=True)
class Point:
    """A row in the plane: its accuracy, and its leakage under the condition where it leaks most."""

    row: TradeoffRow
    accuracy: Summary
    leakage: Summary
    condition: Condition
    leak: float
    """The leakage with the sign that makes more leakier."""


@dataclass(frozen=True)
class Tradeoff:
    """All rows in the order of the plan; ``description`` is what reruns it."""

    rows: tuple[TradeoffRow, ...]
    conditions: tuple[Condition, ...]
    limit: Mapping[str, float]
    description: Mapping[str, Any]
    complete: bool = True
    batch_rule: BatchRule | None = None

    def __getitem__(self, defence: str) -> TradeoffRow:
        return next(row for row in self.rows if row.defence == defence)

    @property
    def axis(self) -> str:
        """The metric that stands for leakage in the plot: the first that is limited, or else identification."""
        return next(iter(self.limit), Identification.name)

    def worst(self, row: TradeoffRow, metric: str) -> tuple[Condition, Measurement] | None:
        """The condition under which a row leaks most; None unless it was measured wherever it can be run.

        The unaware attacker counts too: who knows the defence can forget it, so what ignorance finds, knowledge could.
        """
        possible = [one for one in self.conditions if one not in row.refused]
        found = [(one, row.cells[one].measured(metric) if one in row.cells else None) for one in possible]
        measured = [(condition, measurement) for condition, measurement in found if measurement is not None]
        return max(measured, key=lambda pair: pair[1].leakage) if measured and len(measured) == len(found) else None

    def points(self) -> tuple[Point, ...]:
        """The rows whose accuracy and leakage were both measured."""
        points = []
        for row in self.rows:
            worst = self.worst(row, self.axis)
            if row.accuracy is not None and worst is not None:
                condition, measurement = worst
                points.append(Point(row, row.accuracy, measurement.attack, condition, measurement.leakage))
        return tuple(points)

    def front(self) -> tuple[Point, ...]:
        """The points that no other beats, the least leaky first."""
        points = self.points()
        best = pareto([(point.accuracy.mean, point.leak) for point in points])
        return tuple(sorted((points[index] for index in best), key=lambda point: (point.leak, point.accuracy.mean)))

    def within(self, row: TradeoffRow) -> bool | None:
        """Whether a row keeps every limit under every condition; None if that was not measured or is inconclusive."""
        worst = [(self.worst(row, metric), limit) for metric, limit in self.limit.items()]
        if any(one is not None and one[1].leakage > one[1].metric.leakage(limit) for one, limit in worst):
            return False
        return None if any(one is None for one, _ in worst) or self.doubts(row) else True

    def doubts(self, row: TradeoffRow) -> list[Condition]:
        """The conditions under which nothing can be told of a row: its attacks found nothing, and prove nothing."""
        return [one for one in self.conditions if one in row.cells and row.cells[one].verdict is Verdict.INCONCLUSIVE]

    def false_comfort(self, row: TradeoffRow, condition: Condition) -> float | None:
        """How much less the unaware attacker identified than the leakiest that knows the defence, at one batch size.

        Below zero, the attacks that know the defence are not yet the strongest there are.
        """
        metric = Identification.name
        unaware = row.cells[condition].measured(metric) if condition.unaware and condition in row.cells else None
        aware = [
            found.attack.mean
            for one in self.conditions
            if not one.unaware and one.batch_size == condition.batch_size and one in row.cells
            if (found := row.cells[one].measured(metric)) is not None
        ]
        return None if unaware is None or not aware else max(aware) - unaware.attack.mean

    def to_dict(self) -> dict[str, Any]:
        return {
            "command": "tradeoff",
            "version": VERSION,
            "seed": int(self.description.get("seed", 0)),
            "complete": self.complete,
            "limit": dict(self.limit),
            "axis": self.axis,
            "rows": [self._row(row) for row in self.rows],
            "front": [point.row.defence for point in self.front()],
            "batch_rule": None if self.batch_rule is None else self.batch_rule.to_dict(),
            "cheapest": None if (best := cheapest(self)) is None else best.defence,
        }

    def _row(self, row: TradeoffRow) -> dict[str, Any]:
        return {
            "defence": row.defence,
            "utility": None if row.utility is None else row.utility.to_dict(),
            "untrained": row.untrained,
            "within_limit": self.within(row),
            "bound_over_training": None if row.over_training is None else row.over_training.to_dict(),
            "leakage": [self._cell(row, condition) for condition in self.conditions],
        }

    def _cell(self, row: TradeoffRow, condition: Condition) -> dict[str, Any]:
        cell = row.cells.get(condition)
        known = {
            "threat_model": condition.threat_model,
            "batch_size": condition.batch_size,
            "adaptive": not condition.unaware,
            "measured": cell is not None,
            "refused": row.refused.get(condition),
            "bound": None if condition not in row.bounds else row.bounds[condition].to_dict(),
        }
        if cell is None:
            return known
        return known | {
            "attack": cell.attack,
            "verdict": cell.verdict.value,
            "metrics": {name: one.to_dict() for name, one in cell.measurements.items()},
            "control": None if cell.control is None else {"found": cell.control.seen, "of": cell.control.tried},
            "false_comfort": self.false_comfort(row, condition),
            "seconds": round(cell.seconds, 3),
        }


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the (gain, loss) pairs that no other pair beats: at least as good in both and better in one.

    >>> pareto([(0.9, 1.0), (0.8, 0.2), (0.7, 0.5)])
    [0, 1]
    """

    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one[0] >= other[0] and one[1] <= other[1] and one != other

    return [index for index, point in enumerate(points) if not any(beats(other, point) for other in points)]


def cheapest(result: Tradeoff) -> TradeoffRow | None:
    """The row within the limit that keeps most accuracy, then takes least time, then comes first; None if none is.

    Where no defence is needed, none is cheapest, whatever the last digits of an accuracy or the clock say.
    """
    feasible = [row for row in result.rows if row.accuracy is not None and result.within(row)]
    return min(feasible, key=lambda row: (row.defence != UNDEFENDED, -_mean(row), row.overhead), default=None)


def _mean(row: TradeoffRow) -> float:
    return math.nan if row.accuracy is None else row.accuracy.mean
