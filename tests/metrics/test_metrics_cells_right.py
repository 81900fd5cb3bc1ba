from __future__ import annotations

import pytest
import torch

from leakgauge.errors import InvalidCase
from leakgauge.metrics import CellsRight, Comparison, Identification, align
from leakgauge.space import Categorical, Continuous, TableSpace
from leakgauge.types import Batch, Outcome, Reconstruction

SPACE = TableSpace((Continuous("a", 0, 1000), Continuous("b", 0, 1), Categorical("c", ("x", "y"))))
ROWS = torch.tensor([[500.0, 0.5, 1, 0], [900.0, 0.1, 0, 1]])


def compare(found: torch.Tensor, **options: object) -> Comparison:
    return Comparison(ROWS, found, None, torch.zeros(2), None, space=SPACE, **options)  # type: ignore[arg-type]


def test_a_cell_is_right_within_a_hundredth_of_its_columns_range_and_a_category_if_it_is_the_same():
    found = torch.tensor([[509.0, 0.52, 0.4, 0.3], [911.0, 0.109, 1, 0]])
    torch.testing.assert_close(CellsRight()(compare(found)), torch.tensor([2 / 3, 1 / 3]).double())
    torch.testing.assert_close(CellsRight(0.05)(compare(found)), torch.tensor([1.0, 2 / 3]).double())


def test_an_exact_row_scores_one_and_a_missing_one_is_not_measured():
    found = torch.stack((ROWS[0], torch.full((4,), torch.nan)))
    scores = CellsRight()(compare(found))
    assert scores[0] == CellsRight.exact
    assert scores[1].isnan()


def test_rows_are_paired_and_identified_by_columns_of_equal_weight():
    # In plain squared error the first column would decide alone.
    found = torch.tensor([[890.0, 0.5, 1, 0], [510.0, 0.1, 0, 1]])
    seen = align(Reconstruction(found, None, Outcome.SOLVED), Batch(ROWS, torch.zeros(2)), ROWS.flip(0), space=SPACE)
    assert torch.equal(seen.reconstructions, found)
    crowd = torch.tensor([[890.0, 0.0, 0, 1]])
    assert Identification()(compare(found)).isnan().all()
    seen = Comparison(ROWS, found, crowd, torch.zeros(2), None, space=SPACE)
    assert Identification()(seen).tolist() == [1, 1]


def test_images_have_no_cells_and_a_tolerance_is_a_share():
    images = torch.rand(1, 1, 2, 2)
    with pytest.raises(InvalidCase, match="rows of a table"):
        CellsRight()(Comparison(images, images, None, torch.zeros(1), None))
    with pytest.raises(InvalidCase, match="tolerance"):
        CellsRight(1.0)
