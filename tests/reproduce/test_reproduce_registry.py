"""Every table can be found and read, and every row of it can be measured at every scale."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
import torch

from leakgauge.data import Cifar100
from leakgauge.errors import InvalidCase
from leakgauge.models import ModelFactory
from leakgauge.reproduce import SCALES, TABLES, Row, Table, named_table
from leakgauge.reproduce.measures.updates import Setting, budget_of

OF_UPDATES = [table for table in TABLES.values() if isinstance(table.rows[0].at("smoke"), Setting)]
OF_IMAGES = [table for table in OF_UPDATES if table.metrics[0] == "psnr"]


def telling(table: Table) -> list[Row]:
    """One row for each victim and one for each attack; the others combine them anew."""
    found: list[Row] = []
    seen: set[str] = set()
    for row in table.rows:
        setting = row.at("smoke")
        assert isinstance(setting, Setting)
        parts = {
            repr((setting.model, setting.training, setting.batch_size, setting.local_update)),
            repr(setting.attack),
        }
        if not parts <= seen:
            found.append(row)
        seen |= parts
    return found


@functools.cache
def scores_of(model: ModelFactory, classes: int) -> tuple[int, ...]:
    """The shape of what a model says of two images; many rows share a model."""
    with torch.device("meta"):
        return tuple(model((3, 32, 32), classes)(torch.zeros(2, 3, 32, 32)).shape)


def test_all_tables_are_there() -> None:
    assert Counter(name.partition("/")[0] for name in TABLES) == {
        "geiping2020": 7,
        "huang2021": 4,
        "ma2023": 4,
        "cinet": 7,
        "huang2020": 6,
        "instahide": 3,
    }


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_is_named_after_its_paper_and_says_what_it_assumes(table: Table) -> None:
    assert table is named_table(table.name)
    assert max(Counter(row.label for row in table.rows).values()) == 1
    assert table.title
    assert table.assumptions
    assert {"smoke", "cpu"} <= set(table.shrunk)
    assert (table.null is None) == (table in OF_UPDATES)
    for published in (one for row in table.rows for one in (row.published, *row.also.values()) if one is not None):
        assert published.source.startswith(("Table", "Figure", "section", "the authors' logs"))
        assert published.mean is not None or published.deviation is None


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("scale", SCALES)
def test_a_recipe_is_the_same_text_whenever_it_is_asked_for(table: Table, scale: str) -> None:
    once, again = (
        {label: repr(measure) for label, measure in table.measures(scale).items()}  # type: ignore[arg-type]
        for _ in range(2)
    )
    assert once == again
    assert not any(" at 0x" in text or "<lambda>" in text for text in once.values())


@pytest.mark.slow
@pytest.mark.parametrize("table", OF_UPDATES, ids=repr)
@pytest.mark.parametrize("scale", SCALES)
def test_every_update_can_be_attacked_at_every_scale(table: Table, scale: str) -> None:
    for row in telling(table):
        setting = row.at(scale)  # type: ignore[arg-type]
        assert isinstance(setting, Setting)
        assert 1 <= setting.models <= setting.updates
        assert setting.batch_size % setting.minibatch == 0
        classes = setting.classes or (100 if isinstance(table.dataset, Cifar100) else 10)
        assert scores_of(setting.model, classes) == (2, classes)
        assert (setting.training is not None) >= (", trained" in row.label or row.label.startswith("trained"))
        if scale == "smoke":
            assert setting.updates == 1
            assert table not in OF_IMAGES or budget_of(setting.attack).steps == 2


@pytest.mark.parametrize("table", OF_IMAGES, ids=repr)
def test_the_attacks_of_the_cpu_scale_take_an_hour_at_most(table: Table) -> None:
    total = 0.0
    for setting in table.measures("cpu").values():
        budget = budget_of(setting.attack)
        assert budget.seconds or budget.steps <= 150
        assert budget.clock == "cpu"
        total += (setting.updates + setting.nulls) * (budget.seconds or 0)
    # 24 cells of five attacks are the one exception, and the documentation says so.
    assert total <= (5_400 if table.name == "cinet/comparison" else 3_600)


def test_only_table_3_gives_standard_errors() -> None:
    spreads = {
        table.name: {row.published.spread for row in table.rows if row.published is not None}
        for table in TABLES.values()
    }
    assert [name for name, found in spreads.items() if "standard error" in found] == ["geiping2020/table3"]


def test_an_unknown_table_gets_a_suggestion() -> None:
    with pytest.raises(InvalidCase, match="There is no table 'geiping2020/tabel1'; did you mean 'geiping2020/table1'"):
        named_table("geiping2020/tabel1")
