from __future__ import annotations

import pytest
import torch

from leakgauge.data import augment_images, in_tones_of, resample_rows
from leakgauge.space import Categorical, Continuous, TableSpace


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int, *shape: int) -> torch.Tensor:
    return torch.rand(count, *shape, generator=seeded(9))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 16, 16), (3, 9, 20), (4, 5, 5), (1, 1, 1)])
@pytest.mark.parametrize("count", [0, 1, 130])
def test_as_many_images_are_made_as_are_asked_for_of_the_given_pixels(shape: tuple[int, ...], count: int) -> None:
    given = images(2, *shape)
    made = augment_images(given, count, generator=seeded(0))
    assert made.shape == (count, *shape)
    assert torch.isin(made, given).all()


def test_no_two_of_them_are_equal_and_none_is_the_original() -> None:
    given = images(1, 3, 16, 16)
    made = augment_images(given, 100, generator=seeded(0))
    assert len(torch.cat((given, made)).unique(dim=0)) > 95
    assert torch.equal(made, augment_images(given, 100, generator=seeded(0)))


def test_a_picture_in_the_tones_of_another_has_its_pixels_in_its_own_order() -> None:
    picture, given = images(5, 3, 8, 8), images(1, 3, 8, 8) * 0.1
    toned = in_tones_of(picture, given, generator=seeded(0))
    assert torch.equal(toned.flatten(2).sort().values, given.flatten(2).sort().values.expand(5, -1, -1))
    ranks = torch.stack([one.flatten().argsort().argsort().double() for one in (picture[0, 0], toned[0, 0])])
    assert float(torch.corrcoef(ranks)[0, 1]) > 0.99


def test_rows_are_resampled_column_by_column_and_fewer_lend_less() -> None:
    space = TableSpace((Continuous("age", 0, 100), Categorical("sex", ("f", "m", "x")), Continuous("weight", 0, 1)))
    for count, share in ((1, 1 / 3), (4, 2 / 3), (98, 0.98)):
        rows = space.decode(torch.rand(count, 5, generator=seeded(count)))
        made = resample_rows(space, rows, 2000, generator=seeded(0))
        space.check(made)
        for column in (0, 4):
            assert float(torch.isin(made[:, column], rows[:, column]).double().mean()) == pytest.approx(share, abs=0.04)
        # Columns are drawn apart from each other.
        together = torch.isin(made[:, 0], rows[:, 0]) & torch.isin(made[:, 4], rows[:, 4])
        assert float(together.double().mean()) == pytest.approx(share**2, abs=0.04)
