"""The scales, and what a table that says nothing of ``long`` runs there."""

from __future__ import annotations

import pytest

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.recipes import inverting_gradients
from leakgauge.reproduce import SCALES, TABLES, Table
from leakgauge.reproduce.measures.updates import budget_of, limit
from leakgauge.reproduce.scales import Scale, at_scale


def test_only_long_has_another_to_fall_back_on() -> None:
    assert at_scale({"smoke": 1, "cpu": 2, "full": 3}, "long") == 2
    assert at_scale({"smoke": 1, "cpu": 2, "long": 4, "full": 3}, "long") == 4
    without: dict[Scale, int] = {"cpu": 2}
    for scale in ("smoke", "full"):
        with pytest.raises(KeyError):
            at_scale(without, scale)


def test_an_attack_has_the_work_of_its_scale() -> None:
    steps = [
        budget_of(limit(inverting_gradients(steps=50), one, cpu=Budget(steps=5), long=Budget(steps=20))).steps
        for one in SCALES
    ]
    assert steps == [2, 5, 20, 50]
    assert budget_of(limit(inverting_gradients(steps=50), "long", cpu=Budget(steps=5))).steps == 5


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_table_runs_at_long(table: Table) -> None:
    assert table.measures("long").keys() == {row.label for row in table.rows}
