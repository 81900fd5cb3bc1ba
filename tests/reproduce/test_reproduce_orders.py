"""The order of rows is that of what an attack tells beyond its null, and read only where it tells anything."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from reproduce_support import Counting

from leakgauge.data import Cifar10
from leakgauge.reproduce import Measured, Published, Row, Table
from leakgauge.reproduce.orders import orders


def table(groups: list[str | None]) -> Table:
    rows = [Row(f"row {n}", None, lambda scale: Counting(0), group=group) for n, group in enumerate(groups)]
    return Table("here/orders", "A table", Cifar10(), tuple(rows), metrics=("psnr",))


def scored(number: int, published: float, ours: float, null: float, error: float = 0.1) -> dict[str, Any]:
    """A row as a file has it; two images, so that the mean and its error are what is asked for."""
    measured = {
        side: {"psnr": asdict(Measured.of([[mean - error, mean + error]], per_image=True))}
        for side, mean in (("ours", ours), ("null", null))
    }
    return {
        "label": f"row {number}",
        "published": asdict(Published(published, None, "Table 5")),
        "beside": None,
        **measured,
    }


def test_pairs_that_are_told_apart_are_counted_by_whether_they_stand_in_the_published_order() -> None:
    rows = [scored(n, published, ours, 0.5) for n, (published, ours) in enumerate([(1, 2), (2, 5), (3, 3), (3, 9)])]
    (said,) = orders(table(["all"] * 4), rows)
    assert "of 5 pairs of rows 5 are told apart here, 4 of them in the published order" in said


def test_an_order_that_the_nulls_have_by_themselves_is_none() -> None:
    rows = [scored(n, n, ours=10 + n, null=5 + n) for n in range(4)]
    (said,) = orders(table(["all"] * 4), rows)
    assert "of 6 pairs of rows 0 are told apart" in said


def test_nothing_is_read_where_the_undefended_attack_is_at_its_null() -> None:
    rows = [scored(0, 1, ours=5, null=5), scored(1, 2, ours=9, null=1)]
    (said,) = orders(table(["all"] * 2), rows)
    assert said.endswith("not read, as the undefended attack is at its null.")


def test_rows_without_a_group_or_a_spread_have_no_order() -> None:
    rows = [scored(0, 1, 9, 1), scored(1, 2, 5, 1)]
    assert orders(table([None, None]), rows) == []
    rows[0]["null"]["psnr"]["standard_error"] = None
    assert orders(table(["all"] * 2), rows) == []
