"""Displaced copies are identified, unrelated pictures no more often than chance."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from leakgauge.metrics import Comparison, Identification, ShiftedIdentification
from leakgauge.metrics.displacement import nearest_displaced


def pictures(count: int, seed: int, size: tuple[int, int] = (16, 12)) -> Tensor:
    coarse = torch.rand(count, 3, 6, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return interpolate(coarse, size=size, mode="bilinear")


def compare(originals: Tensor, found: Tensor, distractors: Tensor) -> Comparison:
    return Comparison(originals, found, distractors, torch.zeros(len(originals)), None)


def test_the_nearest_displacement_is_the_one_that_trying_all_finds() -> None:
    image, others = pictures(1, 0)[0], pictures(4, 1)
    tried = [
        (image - others.roll((down, right), dims=(2, 3))).square().flatten(1).sum(dim=1)
        for down in range(-4, 5)
        for right in range(-3, 4)
    ]
    torch.testing.assert_close(nearest_displaced(image, others), torch.stack(tried).amin(dim=0))


def test_displaced_copies_are_identified_where_pixels_do_not_see_them() -> None:
    originals, distractors = pictures(6, 0), pictures(200, 1)
    noise = 0.02 * torch.randn(originals.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    moved = compare(originals, originals.roll((4, -3), dims=(2, 3)) + noise, distractors)
    assert ShiftedIdentification()(moved).tolist() == [1.0] * 6
    assert Identification()(moved).sum() < 3
    too_far = compare(originals, originals.roll((8, 6), dims=(2, 3)), distractors)
    assert ShiftedIdentification()(too_far).sum() < 3


def test_unrelated_pictures_are_identified_as_often_as_chance() -> None:
    originals, found = pictures(400, 3, (8, 8)), pictures(400, 4, (8, 8))
    share = float(ShiftedIdentification()(compare(originals, found, pictures(3, 5, (8, 8)))).mean())
    # One of four by chance; the deviation is 0.022, that of three distractors shared by all aside.
    assert 0.1 < share < 0.4
    own = pictures(1200, 6, (8, 8)).view(400, 3, 3, 8, 8)
    assert abs(float(ShiftedIdentification()(compare(originals, found, own)).mean()) - 0.25) < 0.075


def test_a_copy_among_the_distractors_hides_the_original_and_none_measures_nothing() -> None:
    one = pictures(1, 7)
    moved = one.roll(2, dims=3)
    assert ShiftedIdentification()(compare(one, moved, torch.cat([pictures(5, 8), one]))).tolist() == [0.0]
    assert ShiftedIdentification()(compare(one, moved, torch.cat([pictures(5, 8), moved]))).tolist() == [0.0]
    alone = Comparison(one, moved, None, torch.zeros(1), None)
    assert ShiftedIdentification()(alone).isnan().all()
