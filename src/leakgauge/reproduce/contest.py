"""Who is ahead where several attacks met the same updates: said by a rule, from the scores of a result file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from leakgauge.catalogue import describe_metric
from leakgauge.files import finite

FEWEST = 3
"""Updates that a verdict needs."""


@dataclass(frozen=True)
class Arm:
    """One attack in one cell: the mean score of each update, and that of its null."""

    scores: Sequence[float]
    null: float

    def ahead(self, other: Arm, least: float) -> bool:
        """By every update and by ``least`` in the mean; and by as much above its own null, or it is the prior's win."""
        return Lead.of(self.scores, other.scores).ahead(least) and fmean(self.scores) > self.null + least


Cell = Mapping[str, Arm]
"""By name."""


@dataclass(frozen=True)
class Lead:
    """Of two arms, update by update."""

    mean: float
    deviation: float
    agreed: bool

    @classmethod
    def of(cls, one: Sequence[float], other: Sequence[float]) -> Lead:
        """``agreed``: every update has the sign of the mean, and there are enough of them.

        >>> Lead.of([2.0, 3.0, 4.0], [1.0, 1.0, 1.0])
        Lead(mean=2.0, deviation=1.0, agreed=True)
        """
        gaps = [a - b for a, b in zip(one, other, strict=True)]
        mean = fmean(gaps) if gaps else math.nan
        return cls(
            mean,
            stdev(gaps) if len(gaps) > 1 and not math.isnan(mean) else math.nan,
            len(gaps) >= FEWEST and all(gap * mean > 0 for gap in gaps),
        )

    def ahead(self, least: float) -> bool:
        return self.agreed and self.mean > least


@dataclass(frozen=True)
class Contest:
    """Which arms of a group challenge which others, and by how much one must lead, for each metric.

    ``name`` and ``against`` say in words what the challengers and what the defenders are, ``usual`` is the defender one
    would take from other papers.
    """

    name: str
    against: str
    challengers: tuple[str, ...]
    defenders: tuple[str, ...]
    usual: str
    least: Mapping[str, float]

    @property
    def rule(self) -> str:
        units = {metric: f"{describe_metric(metric).unit} of {metric}".strip() for metric in self.least}
        margins = ", ".join(f"{least:g} {units[metric]}" for metric, least in self.least.items())
        return (
            f"One attack is ahead of another where every update says so and the mean difference is above {margins}; "
            f"at least {FEWEST} updates, the same for both. It must be above its own null by as much."
        )

    def verdict(self, rows: Sequence[Mapping[str, Any]], arms: Mapping[str, tuple[str, str]]) -> dict[str, Any] | None:
        """From the rows of a result file; ``arms`` are group and arm by label. None if no group has all of them."""
        cells = {metric: self._cells(rows, arms, metric) for metric in self.least}
        if not any(cells.values()):
            return None
        return {
            "rule": self.rule,
            "summary": [self._summary(metric, list(cells[metric].values())) for metric in self.least],
            "cells": [
                {"cell": name, **{metric: self._leader(of[name], self.least[metric]) for metric, of in cells.items()}}
                for name in next(iter(cells.values()))
            ],
        }

    def _cells(
        self, rows: Sequence[Mapping[str, Any]], arms: Mapping[str, tuple[str, str]], metric: str
    ) -> dict[str, Cell]:
        """The groups that are complete and have updates enough."""
        found: dict[str, dict[str, Arm]] = {}
        for row in rows:
            if row["label"] in arms:
                group, arm = arms[row["label"]]
                scores, nulls = ([_mean(one["scores"][metric]) for one in row[kind]] for kind in ("updates", "nulls"))
                found.setdefault(group, {})[arm] = Arm(scores, _mean(nulls))
        wanted = {*self.challengers, *self.defenders}
        return {
            group: cell
            for group, cell in found.items()
            if cell.keys() >= wanted and min(len(arm.scores) for arm in cell.values()) >= FEWEST
        }

    def _summary(self, metric: str, cells: Sequence[Cell]) -> str:
        def won(arm: str, cell: Cell, others: Iterable[str]) -> bool:
            return all(cell[arm].ahead(cell[other], self.least[metric]) for other in others)

        def wins(others: tuple[str, ...]) -> tuple[int, str]:
            """Cells that some challenger wins against all of these, and how many each does."""
            each = {arm: [won(arm, cell, others) for cell in cells] for arm in self.challengers}
            some = sum(map(any, zip(*each.values(), strict=True)))
            return some, f"{some} ({'; '.join(f'{arm}: {sum(own)}' for arm, own in each.items())})"

        all_beaten, told = wins(self.defenders)
        lost = sum(any(won(arm, cell, self.challengers) for arm in self.defenders) for cell in cells)
        return (
            f"{metric}: of {len(cells)} cells {self.name}, in one form or another, is ahead of the usual "
            f"{self.against} ({self.usual}) in {wins((self.usual,))[1]} and of every {self.against} in {told}; some "
            f"{self.against} is ahead of all forms of {self.name} in {lost}; {len(cells) - all_beaten - lost} are "
            "undecided."
        )

    def _leader(self, cell: Cell, least: float) -> dict[str, Any]:
        """The highest mean, the next, their difference, and whether the first is ahead of all others."""
        means = {arm: fmean(own.scores) for arm, own in cell.items()}
        ranked = sorted(cell, key=lambda arm: -math.inf if math.isnan(means[arm]) else means[arm], reverse=True)
        first, second = ranked[:2]
        gap = Lead.of(cell[first].scores, cell[second].scores)
        ahead = all(cell[first].ahead(cell[other], least) for other in ranked[1:])
        return {
            "first": first,
            "second": second,
            "difference": finite(gap.mean),
            "deviation": finite(gap.deviation),
            "ahead": ahead,
        }


def _mean(scores: Sequence[float | None]) -> float:
    known = [score for score in scores if score is not None and not math.isnan(score)]
    return fmean(known) if known else math.nan
