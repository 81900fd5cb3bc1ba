"""Signs of pixels from their neighbours."""

from __future__ import annotations

import pytest
import torch

from encodings_support import fields
from leakgauge.attacks.encodings.algebra.synchronisation import along_tree, like_photographs, signs, synchronise
from leakgauge.data import Photos
from leakgauge.randomness import seeded


def flipped(pictures: torch.Tensor, seed: int) -> torch.Tensor:
    mask = torch.rand(pictures.shape[1:], generator=seeded(seed, "mask")) < 0.5
    return torch.where(mask, -pictures, pictures)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_signs_of_smooth_pictures_are_restored_exactly_up_to_one(channels) -> None:
    grey = fields(40, 8, 1, decay=3.0) * 2 - 1
    pictures = torch.cat([grey * (1 - 0.1 * channel) for channel in range(channels)], dim=1)
    found = flipped(pictures, 1) * signs(flipped(pictures, 1))
    overall = (found * pictures).sum().sign()
    torch.testing.assert_close(found * overall, pictures)


def test_the_mean_image_tells_pictures_from_their_negatives() -> None:
    pictures = fields(40, 8, 1, decay=3.0) * 2 - 0.7
    mean = pictures.mean(dim=0)
    for seed in range(4):
        torch.testing.assert_close(synchronise(flipped(pictures, seed), mean), pictures)


def test_without_a_mean_image_pictures_are_dark() -> None:
    pictures = fields(40, 8, 1, decay=3.0) * 2 - 1.3
    torch.testing.assert_close(synchronise(flipped(pictures, 3)), pictures)


def test_without_a_mean_image_photographs_are_told_from_their_negatives() -> None:
    photographs = 2 * Photos(size=16)().test.inputs - 1
    generator, right = seeded(0, "sets"), []
    for _ in range(50):
        chosen = photographs[torch.randperm(len(photographs), generator=generator)[:12]]
        right.append(like_photographs(chosen) > 0)
        assert like_photographs(-chosen) == pytest.approx(-like_photographs(chosen))
    assert sum(right) >= 48


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 4), (1, 4, 1), (2, 5, 5)])
def test_any_shape_of_picture_has_some_evidence(shape) -> None:
    assert like_photographs(torch.full((2, *shape), -0.5)) == pytest.approx(0.5)


def test_along_a_tree_neighbours_whose_products_are_negative_end_with_opposite_signs() -> None:
    values = torch.tensor([[1.0, -2.0, -3.0, 4.0]])
    index = torch.arange(4)
    found = along_tree(values, [(index[1:], index[:-1])])
    assert (found * values[0] > 0).all() or (found * values[0] < 0).all()


def test_one_pixel_and_blank_pictures_are_left_alone() -> None:
    assert signs(torch.zeros(3, 1, 4, 4)).abs().min() == 1
    assert synchronise(torch.full((2, 1, 1, 1), 0.5)).flatten().tolist() == [-0.5, -0.5]
