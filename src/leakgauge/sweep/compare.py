"""Two folders compared: the same private examples under the same attacks, before and after a change."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy import stats

from leakgauge.audit.result import Finding
from leakgauge.audit.store import FolderStore
from leakgauge.audit.verdict import SIGNIFICANT, Verdict, holm
from leakgauge.catalogue import describe_metric
from leakgauge.errors import InvalidCase
from leakgauge.files import finite
from leakgauge.metrics import Metric
from leakgauge.metrics.intervals import student_interval
from leakgauge.sweep.results import CellResult, read_cells


@dataclass(frozen=True)
class PairedDifference:
    """One metric of one defence under one attack: the mean of the second minus the first over the examples that both
    measured, its paired 95 % interval, and the p-value, corrected over all rows by Holm.

    ``worse`` is whether more leaks now: significantly by this metric, or by the verdict, for which ``metric`` is None.
    """

    place: Mapping[str, Any]
    defence: str
    attack: str
    metric: str | None
    pairs: int
    before: float
    after: float
    low: float
    high: float
    p: float
    worse: bool
    words: str = ""

    @property
    def change(self) -> float:
        return self.after - self.before

    def to_dict(self) -> dict[str, Any]:
        values = {name: finite(value) for name, value in vars(self).items() if name != "place"}
        return {**self.place, **values, "change": finite(self.change)}


def compare_stores(
    first: FolderStore, second: FolderStore, metrics: Sequence[str] = ("identification", "psnr")
) -> list[PairedDifference]:
    """All rows that both folders hold; folders without one in common, or of other private examples, are refused."""
    for name in metrics:
        describe_metric(name)
    old, new = ({_place(cell): cell for cell in read_cells(store) if cell.result} for store in (first, second))
    shared = [place for place in old if place in new]
    raw = [one for place in shared for one in _compare_cells(old[place], new[place], metrics)]
    if not raw:
        raise InvalidCase(
            f"{first.folder} and {second.folder} have no cell, defence and attack in common; compare runs of one plan."
        )
    measured = [one for one in raw if not math.isnan(one.p)]
    corrected = dict(zip(map(id, measured), holm([one.p for one in measured]), strict=True))
    return [_judged(one, corrected.get(id(one), math.nan)) for one in raw]


def _place(cell: CellResult) -> str:
    return json.dumps(cell.place, sort_keys=True)


def _compare_cells(old: CellResult, new: CellResult, metrics: Sequence[str]) -> Iterator[PairedDifference]:
    assert old.result is not None
    assert new.result is not None
    if old.description.get("victims") != new.description.get("victims"):
        where = ", ".join(f"{axis}={value}" for axis, value in old.place.items()) or "the audits"
        raise InvalidCase(
            f"The private examples of {where} are not the same in both folders, so that nothing can be paired; run "
            "both with the same data, seed, batch size and rounds."
        )
    after = {(row.defence, row.attack): row for row in new.result.rows}
    for row in old.result.rows:
        if (other := after.get((row.defence, row.attack))) is not None:
            yield from (_difference(old.place, row, other, describe_metric(name)) for name in metrics)
            yield _verdicts(old.place, row, other)


def _difference(place: Mapping[str, Any], old: Finding, new: Finding, metric: Metric) -> PairedDifference:
    pairs = [
        (one, two)
        for first, second in zip(_by_round(old, metric), _by_round(new, metric))
        for one, two in zip(first, second)
        if not math.isnan(one) and not math.isnan(two)
    ]
    before, after = (torch.tensor([pair[side] for pair in pairs], dtype=torch.float64) for side in (0, 1))
    change = after - before
    low, high = student_interval(change) if len(pairs) > 1 else (math.nan, math.nan)
    old_mean, new_mean = (float(one.mean()) if len(pairs) else math.nan for one in (before, after))
    p = _p(change, metric)
    name, count = metric.name, len(pairs)
    return PairedDifference(place, old.defence, old.attack, name, count, old_mean, new_mean, low, high, p, worse=False)


def _by_round(row: Finding, metric: Metric) -> list[tuple[float, ...]]:
    records = sorted(row.records, key=lambda record: record.round)
    return [record.scores.get(metric.name, ()) for record in records]


def _p(change: torch.Tensor, metric: Metric) -> float:
    """That the examples changed by chance: McNemar's exact test for hits, Student's paired one for other scores."""
    if len(change) < 2:
        return math.nan
    if not bool(change.any()):
        return 1.0
    up, moved = int((change > 0).sum()), int((change != 0).sum())
    if metric.binary or float(change.std()) == 0:
        return float(stats.binomtest(up, moved).pvalue)
    return float(stats.ttest_1samp(change.numpy(), 0.0).pvalue)


def _verdicts(place: Mapping[str, Any], old: Finding, new: Finding) -> PairedDifference:
    worse = new.verdict.leaks and not old.verdict.leaks
    words = f"{old.verdict.value} -> {new.verdict.value}"
    if old.verdict is Verdict.NO_LEAK_FOUND and new.verdict is Verdict.INCONCLUSIVE:
        words += ", which is no longer known not to leak"
    return PairedDifference(
        place, old.defence, old.attack, None, 0, old.leaked, new.leaked, math.nan, math.nan, math.nan, worse, words
    )


def _judged(one: PairedDifference, p: float) -> PairedDifference:
    if one.metric is None:
        return one
    leakier = describe_metric(one.metric).leakage(one.after) > describe_metric(one.metric).leakage(one.before)
    worse = p <= SIGNIFICANT and leakier
    return PairedDifference(**{**vars(one), "p": p, "worse": worse})
