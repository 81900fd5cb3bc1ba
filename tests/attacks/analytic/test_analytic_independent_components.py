"""Independent components: batches unmixed by the statistics of images, and nothing of unrelated updates."""

from __future__ import annotations

import pytest
import torch

from leakgauge.attacks.analytic import IndependentComponents
from leakgauge.data import Photos
from leakgauge.defences import SecureAggregation
from leakgauge.errors import InvalidCase
from leakgauge.metrics import PSNR, Identification, align
from leakgauge.models import MLP, Compact, build
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome

SHAPE = (3, 24, 24)


@pytest.fixture(scope="module")
def photos() -> Batch:
    test = Photos(size=24)().test
    return test[torch.randperm(len(test), generator=seeded(0))[:96]]


@pytest.fixture(scope="module")
def update(attacked, photos):
    """The update of sixteen photographs behind secure aggregation of four clients."""
    module = build(MLP(hidden=(200, 20)), SHAPE, 10, seed=0)
    return lambda batch: attacked(module, batch, threat_model="honest_but_curious", defence=SecureAggregation(4))


def test_sixteen_photographs_of_four_clients_are_identified_and_unrelated_ones_are_not(update, photos):
    truth, decoy, crowd = photos[slice(0, 16)], photos[slice(16, 32)], photos.inputs[32:]
    found = IndependentComponents()(update(truth), generator=seeded(0))
    unrelated = IndependentComponents()(update(decoy), generator=seeded(0))
    assert found.outcome is Outcome.CONVERGED
    assert float(Identification()(align(found, truth, crowd)).mean()) > 0.9
    assert float(Identification()(align(unrelated, truth, crowd)).mean()) < 0.5
    assert float(PSNR()(align(found, truth)).median()) > 20


def test_sources_that_are_sparse_and_do_not_overlap_are_unmixed_nearly_exactly(attacked):
    # Each image is grey but for a square of its own, so that no two have a difference at one place.
    images = torch.full((4, 1, 24, 24), 0.5, dtype=torch.float64)
    for number in range(4):
        row, column = 12 * (number // 2) + 3, 12 * (number % 2) + 3
        images[number, 0, row : row + 5, column : column + 5] = (0.9, 0.7, 0.2, 0.05)[number]
    batch = Batch(images, torch.arange(4))
    module = build(MLP(hidden=(64,), activation="tanh"), (1, 24, 24), 10, seed=0).double()
    found = IndependentComponents()(attacked(module, batch), generator=seeded(0))
    assert float(PSNR()(align(found, batch)).min()) > 35


def test_one_image_needs_no_unmixing(attacked, photos):
    seen = attacked(build(MLP(hidden=(16,)), SHAPE, 10, seed=0), photos[slice(0, 1)])
    found = IndependentComponents()(seen, generator=seeded(0))
    torch.testing.assert_close(found.inputs, photos.inputs[:1], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("module", "count", "reason"),
    [
        (build(Compact(), SHAPE, 10, seed=0), 2, "no biased linear layer"),
        (build(MLP(hidden=(4,)), SHAPE, 10, seed=0), 8, "too few to hold 8 images apart"),
    ],
    ids=["convolutions", "narrow"],
)
def test_where_nothing_can_be_unmixed_the_reason_is_given(module, count, reason, attacked, photos):
    found = IndependentComponents()(attacked(module, photos[slice(0, count)]), generator=seeded(0))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert reason in found.facts["reason"]


def test_no_steps_are_refused():
    with pytest.raises(InvalidCase, match="at least 1"):
        IndependentComponents(steps=0)
