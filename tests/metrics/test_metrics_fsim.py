"""FSIM against values of an independent implementation, and what it must be for any pair."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import avg_pool2d

from leakgauge.data import Photos
from leakgauge.metrics import FSIM, Comparison
from leakgauge.metrics.fsim import phase_congruency

PHOTOS = Photos()(None).test.inputs[:4].double()

# By piq 0.8.0 (which takes the lower of two middle values for the median where the published code takes their mean, so
# even sizes differ by some 1e-4): the first four embedded photographs against another version of themselves.
PUBLISHED = {
    ("blurred", 31, False): (0.89553, 0.89008, 0.89366, 0.88618),
    ("blurred", 31, True): (0.89514, 0.88990, 0.89350, 0.88591),
    ("blurred", 32, True): (0.87534, 0.87757, 0.88064, 0.86108),
    ("another", 31, False): (0.60017, 0.55164, 0.67670, 0.64962),
    ("another", 31, True): (0.59071, 0.54485, 0.67450, 0.64641),
    ("another", 32, False): (0.58774, 0.55043, 0.67368, 0.65158),
}


def fsim(one: Tensor, two: Tensor, chromatic: bool = True) -> Tensor:
    return FSIM(chromatic)(Comparison(one, two, None, torch.zeros(len(one)), None))


@pytest.mark.parametrize(("version", "side", "chromatic"), PUBLISHED)
def test_fsim_equals_an_independent_implementation(version: str, side: int, chromatic: bool) -> None:
    changed = {"blurred": avg_pool2d(PHOTOS, 3, 1, 1), "another": PHOTOS.roll(1, 0)}[version]
    found = fsim(PHOTOS[..., :side, :side], changed[..., :side, :side], chromatic)
    assert found.tolist() == pytest.approx(PUBLISHED[version, side, chromatic], abs=1e-4)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**31), channels=st.sampled_from([1, 3]), side=st.integers(8, 20))
def test_fsim_is_symmetric_at_most_one_and_one_for_equal_images(seed: int, channels: int, side: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    one, two = torch.rand(2, 2, channels, side, side + 3, generator=generator, dtype=torch.float64)
    assert torch.allclose(fsim(one, one), torch.ones(2, dtype=torch.float64))
    assert torch.allclose(fsim(one, two), fsim(two, one))
    assert bool((fsim(one, two) < 1).all())


def test_fsim_falls_with_noise() -> None:
    noise = torch.randn(PHOTOS.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores = [float(fsim(PHOTOS, (PHOTOS + size * noise).clamp(0, 1)).mean()) for size in (0.02, 0.05, 0.1, 0.3)]
    assert scores == sorted(scores, reverse=True)


def test_phase_congruency_does_not_depend_on_contrast_and_marks_an_edge() -> None:
    edge = torch.zeros(1, 32, 32, dtype=torch.float64)
    edge[:, :, 16:] = 200
    found = phase_congruency(edge)
    assert torch.allclose(phase_congruency(edge / 4), found, atol=2e-2)
    # The spectrum wraps around, so the image has an edge in its middle and one at its border.
    assert set(found[0, 8].topk(4).indices.tolist()) == {0, 15, 16, 31}


def test_a_flat_image_has_a_score() -> None:
    flat = torch.full((1, 3, 16, 16), 0.5)
    assert float(fsim(flat, flat)) == pytest.approx(1)
    assert 0 <= float(fsim(flat, PHOTOS[:1, :, :16, :16].float())) < 0.9


def test_sides_below_eight_are_not_measured() -> None:
    assert bool(fsim(torch.rand(2, 3, 7, 9), torch.rand(2, 3, 7, 9)).isnan().all())
