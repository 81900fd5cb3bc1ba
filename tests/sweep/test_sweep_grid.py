"""A grid is the product of its lists, and refuses what no audit would take."""

from __future__ import annotations

from typing import Any

import pytest
from sweep_support import GRID

from leakgauge.errors import InvalidCase
from leakgauge.sweep import read_grid


def test_a_grid_is_the_product_of_its_lists_but_for_defences_and_attacks() -> None:
    cells = list(read_grid(GRID).cells())
    assert len(cells) == 8
    assert [tuple(cell.place.values()) for cell in cells[:3]] == [(0, 1, 0), (0, 1, 1), (0, 100_000, 0)]
    plan = cells[1].plan()
    assert (plan.batch_size, plan.seed, plan.train_steps) == (1, 1, 0)
    assert plan.defences == ("none", "pruning:keep=0.5")
    assert read_grid(read_grid(GRID).words()) == read_grid(GRID)


def test_what_matches_a_table_of_without_is_left_out() -> None:
    cells = list(read_grid(GRID | {"without": [{"batch_size": 100_000, "seeds": 1}]}).cells())
    assert len(cells) == 6
    assert all((cell.place["batch_size"], cell.place["seed"]) != (100_000, 1) for cell in cells)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": "red"}, r"no option 'colour'"),
        ({"seed": [0], "seeds": [1]}, r"gives 'seed' twice"),
        ({"batch_sizes": []}, r"'batch_size' of the grid is empty"),
        ({"batch_sizes": [1, 1]}, r"'batch_size' of the grid gives a value twice"),
        ({"batch_sizes": ["many"]}, r"must be a whole number"),
        ({"without": [{"colour": 1}]}, r"names 'colour', which is no key"),
        ({"without": {"seed": 1}}, r"is a list of tables"),
        ({"without": [{"seed": 0}, {"seed": 1}]}, r"has no cell left"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused_in_one_sentence(change: dict[str, Any], words: str) -> None:
    base = {key: value for key, value in GRID.items() if not (key == "seeds" and "seed" in change)}
    with pytest.raises(InvalidCase, match=words):
        read_grid(base | change)
