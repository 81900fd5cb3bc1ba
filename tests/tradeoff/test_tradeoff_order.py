"""Which defences should leak less than which, and what the page says where they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tradeoff_support import REAL, STRONG, cell, row, table_of

from leakgauge.report.tradeoff_words import remarks
from leakgauge.tradeoff.order import Order, Relation, expected_orders, relate
from leakgauge.tradeoff.result import TradeoffRow

NAMES = ("none", "mixup:k=4", "instahide:k=4", "instahide:k=4+pruning:keep=0.1")


def shown(defence: str, psnr: float, identified: int = 4) -> TradeoffRow:
    """A row under two attackers."""
    return replace(row(defence, 0.9, 4), cells={one: cell(identified, psnr) for one in (STRONG, REAL)})


def remark(*rows: TradeoffRow, about: str) -> str:
    (found,) = [one for one in remarks(table_of(*rows)) if about in one]
    return found


def test_the_orders_of_a_table_are_those_of_its_defences() -> None:
    names = ("pruning:keep=0.01", "mixup:k=4", "none", "clipping", "pruning:keep=0.3", "instahide:k=6", *NAMES[2:])
    found = expected_orders([row(name, 0.9, 4) for name in names])
    assert [([one.defence for one in order.rows], order.strict) for order in found] == [
        (["none", "pruning:keep=0.3", "pruning:keep=0.01"], False),
        (["none", *NAMES[1:]], True),
        (["none", "instahide:k=6"], True),
    ]
    assert expected_orders([row("clipping", 0.9, 4)]) == []


@pytest.mark.parametrize(
    ("more", "less", "relation"),
    [
        (20.0, 17.0, Relation.APART),
        (20.0, 20.01, Relation.OVERLAP),
        (10.0, 12.0, Relation.AT_NULLS),
        (17.0, 20.0, Relation.REVERSED),
    ],
)
def test_two_rows_are_told_apart_where_they_differ_by_more_than_the_interval(
    more: float, less: float, relation: Relation
) -> None:
    identified = 0 if relation is Relation.AT_NULLS else 4
    rows = [shown("none", more, identified), shown("mixup:k=4", less, identified)]
    assert relate(*rows, STRONG) is relation
    assert relate(rows[0], replace(rows[1], cells={}), STRONG) is None


def test_who_does_not_know_the_defence_does_not_count() -> None:
    rows = (row("none", 0.9, 8, unaware=0), row("mixup:k=4", 0.8, 0, unaware=8))
    compared = Order(rows, strict=True).compare(table_of(*rows))
    assert {one.condition for one in compared} == {STRONG, REAL}
    assert {one.relation for one in compared} == {Relation.APART}


def test_the_page_says_that_the_order_holds() -> None:
    rows = [shown(name, 25.0 - 3 * place) for place, name in enumerate(NAMES)]
    assert "holds beyond the 95 % intervals, under every attacker" in remark(*rows, about="No defence > MixUp")


def test_or_why_it_does_not() -> None:
    rows = [shown(name, psnr) for name, psnr in zip(NAMES, (25.0, 25.03, 28.0, 20.0), strict=True)]
    said = remark(*rows, about="Expected: No defence > MixUp")
    assert "in 2 of 6 comparisons" in said
    assert "within its interval" in said
    assert "other way round for MixUp (k 4) and InstaHide (k 4) (strongest, batch 1)" in said
    hidden = [shown("none", 25.0), shown("mixup:k=4", 10.0, 0), shown("instahide:k=4", 10.01, 0)]
    assert "nothing is left to tell apart" in remark(*hidden, about="Expected")


def test_of_pruning_it_says_whether_leakage_falls() -> None:
    falling = [shown(f"pruning:keep={keep}", psnr) for keep, psnr in ((0.3, 20.0), (0.1, 20.01), (0.01, 16.0))]
    assert "rises nowhere along" in remark(*falling, about="(keep 0.3) > ")
    assert "in 2 of 4 comparisons it falls by more" in remark(*falling, about="(keep 0.3) > ")
    rising = [falling[0], shown("pruning:keep=0.1", 24.0)]
    assert "but does by more than" in remark(*rising, about="(keep 0.3) > ")


def test_it_is_the_difference_on_the_same_images_that_is_judged() -> None:
    # Between 10 and 30 dB from image to image, but always 1 dB apart: intervals of the means would overlap.
    more, less = (replace(cell(4), scores={"psnr": tuple(base + 4.0 * n for n in range(6))}) for base in (10.0, 9.0))
    assert (
        relate(*(replace(row("none", 0.9, 4), cells={STRONG: one}) for one in (more, less)), STRONG) is Relation.APART
    )
    # Another number of images is another set of them.
    fewer = replace(less, scores={"psnr": (9.0, 9.0)})
    assert relate(*(replace(row("none", 0.9, 4), cells={STRONG: one}) for one in (more, fewer)), STRONG) is None
