"""Trap weights: images that activate a row alone come back exactly, and as many as were to be expected."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leakgauge.attacks.malicious import TrapWeights
from leakgauge.attacks.malicious.guessed_images import guess_images
from leakgauge.data import Photos
from leakgauge.defences import NoDefence
from leakgauge.errors import InvalidCase
from leakgauge.metrics import PSNR, align
from leakgauge.models import MLP, Compact, build
from leakgauge.protocol import THREAT_MODELS, Federation, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch, Outcome

SHAPE = (3, 12, 12)


def leak(attack, module: nn.Module, batch: Batch, public=None):
    sent = attack.tamper(Federation(*learner_and_state(module)), ImageSpace(*SHAPE), public)
    threat_model, defence = THREAT_MODELS["honest_but_curious"], NoDefence()
    seen = simulate_round(sent, batch, threat_model=threat_model, defence=defence, generator=seeded(0))
    return seen, attack(seen, generator=seeded(0))


@pytest.fixture(scope="module")
def batch() -> Batch:
    test = Photos(size=12)().test
    order = torch.randperm(len(test), generator=seeded(0))[:40]
    return test[order]


@pytest.mark.parametrize("public", [True, False])
def test_images_that_are_alone_in_two_rows_come_back_exactly(public, batch):
    attack = TrapWeights(examples=40)
    held = Photos(size=12)().train.inputs[:300] if public else None
    seen, found = leak(attack, build(MLP(hidden=(400, 20)), SHAPE, 10, seed=0), batch, held)
    layer = seen.learner.layer_inputs(seen.state, batch.inputs, nn.Linear)["linear1"]
    active = layer @ seen.state.params["linear1.weight"].mT + seen.state.params["linear1.bias"] > 0
    rows_alone = (active & (active.sum(dim=0) == 1)).sum(dim=1)
    scores = PSNR()(align(found, batch))
    # All but those whose signal the layers behind stop in all but one of its rows.
    assert float((scores[rows_alone > 1] > 60).double().mean()) > 0.9
    assert float((scores > 60).double().mean()) > 0.3
    assert abs(found.facts["given by two rows"] - int((rows_alone > 1).sum())) <= 2


def test_the_expected_number_is_that_of_a_simulation():
    generator = seeded(0)
    eager = torch.rand(300, 1, generator=generator) * 0.08
    activations = torch.rand(300, 60, generator=generator) < eager
    counts = []
    for _ in range(400):
        active = activations[torch.randperm(300, generator=generator)[:25]]
        counts.append(float((active & (active.sum(dim=0) == 1)).any(dim=1).sum()))
    drawn = torch.tensor(counts)
    expected = TrapWeights().expected_recovery(25, activations)
    assert abs(float(drawn.mean()) - expected) < 0.05 * expected


def test_images_reach_the_traps_of_a_convolutional_net(batch):
    layers = (nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(864, 300), nn.ReLU())
    module = nn.Sequential(*layers, nn.Linear(300, 10))
    _, found = leak(TrapWeights(examples=20), module, batch[slice(0, 20)])
    assert int((PSNR()(align(found, batch[slice(0, 20)])) > 50).sum()) >= 6


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (build(Compact(), SHAPE, 10, seed=0), "straight to the classifier"),
        (build(MLP(hidden=(16,), activation="sigmoid"), SHAPE, 10, seed=0), "passes on what is negative"),
    ],
    ids=["no hidden layer", "never at rest"],
)
def test_a_model_without_a_place_for_traps_is_left_alone(module, reason, batch):
    _, found = leak(TrapWeights(), module, batch[slice(0, 2)])
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert reason in found.facts["reason"]


def test_guessed_images_are_images_and_smooth():
    images = guess_images((3, 16, 16), 50, seeded(0))
    assert 0 <= float(images.min()) < float(images.max()) <= 1
    assert float(images.diff(dim=3).square().mean()) < 0.5 * float(images.var(dim=(2, 3)).mean())


def test_traps_for_no_example_are_refused():
    with pytest.raises(InvalidCase, match="at least 1"):
        TrapWeights(examples=0)
