"""Signs of pixels from their neighbours."""

from __future__ import annotations

import pytest
import torch
from instahide_support import fields

from leakgauge.attacks.instahide.synchronisation import signs, synchronised
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
        torch.testing.assert_close(synchronised(flipped(pictures, seed), mean), pictures)


def test_without_a_mean_image_pictures_are_dark() -> None:
    pictures = fields(40, 8, 1, decay=3.0) * 2 - 1.3
    torch.testing.assert_close(synchronised(flipped(pictures, 3)), pictures)


def test_one_pixel_and_blank_pictures_are_left_alone() -> None:
    assert signs(torch.zeros(3, 1, 4, 4)).abs().min() == 1
    assert synchronised(torch.full((2, 1, 1, 1), 0.5)).flatten().tolist() == [-0.5, -0.5]
