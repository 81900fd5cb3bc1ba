"""Bins in front of a model: how many images to expect alone, what several measures add, and what local steps leave."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from leakgauge.attacks.malicious import FrontLayer, SparseFrontLayer
from leakgauge.attacks.malicious.bins import BinContents, expected_alone, measures_of, read_cells, sample_edges
from leakgauge.data import Photos
from leakgauge.defences import NoDefence, SecureAggregation
from leakgauge.errors import InvalidCase
from leakgauge.metrics import PSNR, align
from leakgauge.models import Compact, build
from leakgauge.protocol import THREAT_MODELS, FedAvg, Federation, FedSGD, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch

SHAPE = (3, 12, 12)
PLAIN = FedSGD()


@pytest.fixture(scope="module")
def photos() -> tuple[Tensor, Tensor]:
    """Public and private photographs."""
    data = Photos(size=12)()
    private = data.test.inputs[torch.randperm(len(data.test), generator=seeded(4))]
    return data.train.inputs[:300], private


def exact(attack, images: Tensor, public: Tensor | None, *, local_update=PLAIN, clients=1, above=40) -> int:
    """How many of the images came back."""
    batch = Batch(images, torch.arange(len(images)) % 10)
    honest = Federation(*learner_and_state(build(Compact(width=4), SHAPE, 10, seed=0)), local_update)
    seen = simulate_round(
        attack.tamper(honest, ImageSpace(*SHAPE), public),
        batch,
        threat_model=THREAT_MODELS["honest_but_curious"],
        defence=SecureAggregation(clients) if clients > 1 else NoDefence(),
        generator=seeded(0, "client"),
    )
    found = attack(seen, generator=seeded(0))
    assert found.facts["expected exact"] == round(attack.expected_recovery(len(images)), 1)
    return sum(score > above for score in PSNR()(align(found, batch)).tolist())


@pytest.mark.parametrize(("count", "bins", "measures"), [(64, 1000, 1), (64, 250, 4), (20, 30, 2), (1, 1, 1)])
def test_the_expected_number_alone_is_that_of_a_simulation(count, bins, measures):
    draws = torch.randint(bins, (500, measures, count), generator=seeded(0))
    alone = (draws[..., :, None] == draws[..., None, :]).sum(dim=-1) == 1
    per_run = alone.any(dim=1).sum(dim=1).double()
    error = float(per_run.std()) / 500**0.5
    assert abs(float(per_run.mean()) - expected_alone(count, bins, measures)) <= 4 * error


def test_edges_from_a_sample_make_bins_that_others_of_its_kind_fill_evenly():
    generator = seeded(0)
    sample, others = (torch.randn(size, generator=generator).abs().sqrt() for size in (400, 20_000))
    counts = torch.bincount(torch.bucketize(others.double(), sample_edges(10, sample)[1:]), minlength=10) / 20_000
    assert float((counts - 0.1).abs().max()) < 0.05


def test_measures_see_brightness_first_and_are_orthogonal():
    measures = measures_of(SHAPE, 6)
    torch.testing.assert_close(measures[0], torch.full((432,), 1 / 432, dtype=torch.float64))
    gram = measures @ measures.mT
    assert float((gram - gram.diag().diag()).abs().max()) < 1e-12
    with pytest.raises(InvalidCase, match="have 144 measures, got 145"):
        measures_of(SHAPE, 145)


def cells_of(images: Tensor, weights: Tensor, measures: int, bins: int) -> BinContents:
    """What bins would hold of these images."""
    empty = BinContents(
        measures_of((1, 4, 4), measures),
        torch.stack([sample_edges(bins, values) for values in measures_of((1, 4, 4), measures) @ images.mT]),
        torch.zeros(measures, bins, 16, dtype=torch.float64),
        torch.zeros(measures, bins, dtype=torch.float64),
        1e-12,
    )
    for image, weight in zip(images, weights):
        empty.take_out(image, -weight)
    return empty


def test_images_that_are_alone_nowhere_at_first_are_peeled_free():
    images = torch.rand(12, 16, generator=seeded(1), dtype=torch.float64)
    weights = torch.randn(12, generator=seeded(2), dtype=torch.float64)
    cells = cells_of(images, weights, measures=4, bins=12)
    occupied = int(cells.occupied().sum(dim=1).max())
    assert occupied < 12
    found = read_cells(cells, 12)
    assert (found.confirmed, found.occupied) == (12, occupied)
    assert float(torch.cdist(found.images, images).amin(dim=0).max()) < 1e-6


def test_images_that_one_measure_alone_isolates_come_back_without_being_confirmed():
    wave = measures_of((1, 4, 4), 2)[1] * 4
    images = torch.stack((0.5 + wave, 0.5 - wave))  # equally bright
    found = read_cells(cells_of(images, torch.ones(2, dtype=torch.float64), measures=2, bins=2), 2)
    assert found.confirmed == 0
    assert float(torch.cdist(found.images, images).amin(dim=0).max()) < 1e-9


@pytest.mark.parametrize("attack", [FrontLayer(480, measures=4), SparseFrontLayer(480, measures=4)], ids=repr)
def test_several_measures_bring_back_what_one_would_mix(attack, photos):
    public, private = photos
    one = exact(FrontLayer(480), private[:60], public)
    assert one < 60
    assert exact(attack, private[:60], public) == 60


def test_the_sparse_variant_survives_local_steps_that_blur_the_normal_one(photos):
    public, private = photos
    steps = FedAvg(2, 4, 0.05)
    sparse = exact(SparseFrontLayer(800), private[:16], public, local_update=steps, above=35)
    assert sparse >= 13
    assert exact(FrontLayer(800), private[:16], public, local_update=steps, above=35) <= sparse / 2


def test_behind_secure_aggregation_the_bins_hold_the_images_of_all_clients(photos):
    public, private = photos
    attack = FrontLayer(480, measures=4)
    assert exact(attack, private[:40], public, clients=8) == exact(attack, private[:40], public) == 40


def test_a_strength_that_is_none_is_refused():
    with pytest.raises(InvalidCase, match="strength"):
        SparseFrontLayer(strength=0.0)
