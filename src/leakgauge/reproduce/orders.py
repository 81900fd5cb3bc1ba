"""Whether rows stand in the order that a paper prints, by what an attack tells beyond its null."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from leakgauge.reproduce.standing import at_null
from leakgauge.reproduce.table import Table

_APART = 1.96
"""Standard errors of a difference by which two rows are told apart."""


class _Beyond(NamedTuple):
    """A row of a group: the number that was published, and the mean and standard error of attack minus null."""

    published: float
    mean: float
    error: float


def orders(table: Table, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each group of rows, how many pairs we tell apart and how many of these stand in the published order.

    The rows are as a result file has them. What counts is attack minus null: a defence that changes what an attack
    makes of an unrelated update, as mixing does, would order rows by itself. The first row of a group is undefended;
    where that is at its null nothing is read from the others. Pairs that the paper prints with the same number have no
    order.
    """
    metric = table.metrics[0]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    by_label = {row["label"]: row for row in rows}
    for one in table.rows:
        if one.group is not None and one.arm is None and one.label in by_label:
            groups.setdefault(one.group, []).append(by_label[one.label])
    said = []
    for group, own in groups.items():
        found = [beyond for row in own if (beyond := _beyond(row, metric)) is not None]
        if len(found) < 2:
            continue
        if at_null(own[0], metric):
            said.append(f"Order by {metric}, {group}: not read, as the undefended attack is at its null.")
            continue
        pairs, apart, alike = _count(found)
        said.append(
            f"Order by {metric}, attack minus null, {group}: of {pairs} pairs of rows {apart} are told apart here, "
            f"{alike} of them in the published order."
        )
    return said


def _beyond(row: Mapping[str, Any], metric: str) -> _Beyond | None:
    ours, null = row["ours"].get(metric), row["null"].get(metric)
    published = row["published"] or row["beside"]
    if not ours or not null or not published or published["mean"] is None:
        return None
    if None in (ours["standard_error"], null["standard_error"]):
        return None
    error = math.hypot(ours["standard_error"], null["standard_error"])
    return _Beyond(published["mean"], ours["mean"] - null["mean"], error)


def _count(found: Sequence[_Beyond]) -> tuple[int, int, int]:
    """Pairs, those told apart, and those of them in the published order."""
    pairs = [(a, b) for a, b in combinations(found, 2) if a.published != b.published]
    apart = [(a, b) for a, b in pairs if abs(a.mean - b.mean) > _APART * math.hypot(a.error, b.error)]
    alike = sum((a.published - b.published) * (a.mean - b.mean) > 0 for a, b in apart)
    return len(pairs), len(apart), alike
