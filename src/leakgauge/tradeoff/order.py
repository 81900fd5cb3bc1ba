"""Which defences should leak less than which, and whether the table says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import torch
from torch import Tensor

from leakgauge.audit.verdict import Verdict
from leakgauge.config import build_defence
from leakgauge.defences import Defence, InstaHide, MixUp, NoDefence, Pruning, parts
from leakgauge.errors import InvalidCase
from leakgauge.metrics import PSNR, SSIM, Identification, student_interval
from leakgauge.tradeoff.plan import Condition
from leakgauge.tradeoff.result import Cell, Tradeoff, TradeoffRow

_METRICS = (Identification, PSNR, SSIM)


class Relation(Enum):
    """What a table says of two rows under one condition."""

    APART = "apart"
    """In the expected order: by one metric at least the difference is beyond its interval, by none the other way."""
    OVERLAP = "overlap"
    """The difference is within its interval."""
    AT_NULLS = "at nulls"
    """Neither row shows more than chance and its null do: there is nothing left to tell apart, whatever the digits."""
    REVERSED = "reversed"
    """By one metric at least the row that should leak less leaks more, beyond the interval."""


@dataclass(frozen=True)
class Compared:
    """Two neighbours of an order under one condition."""

    more: str
    less: str
    condition: Condition
    relation: Relation


@dataclass(frozen=True)
class Order:
    """Rows of a table, the leakiest expected first; ``strict`` if each should leak less and not merely no more."""

    rows: tuple[TradeoffRow, ...]
    strict: bool

    def compare(self, result: Tradeoff) -> list[Compared]:
        """Every pair of neighbours under every attacker who knows the defence, where both were measured."""
        return [
            Compared(more.defence, less.defence, condition, relation)
            for condition in result.conditions
            if not condition.unaware
            for more, less in pairwise(self.rows)
            if (relation := relate(more, less, condition)) is not None
        ]


def expected_orders(rows: Sequence[TradeoffRow]) -> list[Order]:
    """The orders that are known: less is left by more pruning; none > MixUp > InstaHide > InstaHide and pruning.

    The second is that of Huang et al. [2021, Table 5], for as many of its steps as the table has, of one k.
    """
    built = {row.defence: _built(row.defence) for row in rows}
    pruned = [row for row in rows if isinstance(built[row.defence], Pruning)]
    pruned.sort(key=lambda row: -built[row.defence].keep)  # type: ignore[union-attr]
    plain = [row for row in rows if isinstance(built[row.defence], NoDefence)]
    orders = [Order((*plain, *pruned), strict=False)]
    for k in dict.fromkeys(one.k for one in built.values() if isinstance(one, MixUp | InstaHide)):
        steps = [*plain]
        for kinds in ((MixUp,), (InstaHide,), (InstaHide, Pruning)):
            steps += [row for row in rows if _is(built[row.defence], kinds, k)][:1]
        orders.append(Order(tuple(steps), strict=True))
    return [order for order in orders if len(order.rows) > 1]


def relate(more: TradeoffRow, less: TradeoffRow, condition: Condition) -> Relation | None:
    """What is known of two rows under one condition; None if one of them was not measured.

    Both are attacked on the same images, so that what is judged is the difference image by image, by Student's 95 %
    interval: it leaves out how images differ among themselves.
    """
    cells = [row.cells[condition] for row in (more, less) if condition in row.cells]
    if len(cells) < 2:
        return None
    found = [student_interval(_gained(cells[0], cells[1], metric.name)) for metric in _METRICS]
    differences = [(low, high) for low, high in found if not math.isnan(low)]
    if not differences:
        return None
    if all(cell.verdict is Verdict.NO_LEAK_FOUND for cell in cells):
        return Relation.AT_NULLS
    if any(high < 0 for _, high in differences):
        return Relation.REVERSED
    return Relation.APART if any(low > 0 for low, _ in differences) else Relation.OVERLAP


def _gained(more: Cell, less: Cell, metric: str) -> Tensor:
    """By how much each image leaks more in one cell than in the other, of those that have a score in both."""
    one, two = (torch.tensor(cell.scores.get(metric, ()), dtype=torch.float64) for cell in (more, less))
    gained = one - two if len(one) == len(two) else one[:0]
    return gained[~gained.isnan()]


def _built(text: str) -> Defence | None:
    """The defence that a row is named after; None for one that only Python knows."""
    try:
        return build_defence(text)
    except InvalidCase:
        return None


def _is(defence: Defence | None, kinds: tuple[type, ...], k: int) -> bool:
    """Whether a defence is a chain of these kinds, the first of them mixing k images."""
    links = () if defence is None else parts(defence)
    return tuple(map(type, links)) == kinds and isinstance(links[0], MixUp | InstaHide) and links[0].k == k
