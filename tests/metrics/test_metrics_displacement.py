"""Pictures compared at all displacements."""

from __future__ import annotations

import pytest
import torch

from leakgauge.metrics import displacement
from leakgauge.metrics.displacement import nearest_displaced, unlike_displaced


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 9), (3, 16, 16), (1, 16, 5)])
def test_plain_products_are_those_of_fourier_transforms(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    images, others = (torch.rand(n, *shape, generator=generator, dtype=torch.float64) for n in (9, 4))
    plain = unlike_displaced(images, others), nearest_displaced(images[0], others)
    monkeypatch.setattr(displacement, "_FEW_PIXELS", 0)
    transformed = unlike_displaced(images, others), nearest_displaced(images[0], others)
    for one, other in zip(plain, transformed, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("side", [8, 24])
def test_a_picture_displaced_within_reach_is_itself_and_beyond_it_is_not(side: int) -> None:
    image = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    reach = side // 4
    for away, same in ((reach, True), (-reach, True), (reach + 1, False)):
        assert (float(unlike_displaced(image.roll(away, dims=3), image)) < 1e-9) is same
