"""Fishing: of a large batch the update of a few examples, exactly."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leakgauge import params as tree
from leakgauge.attacks.analytic import FullyConnected
from leakgauge.attacks.malicious import ClassFishing, FeatureFishing
from leakgauge.data import Photos
from leakgauge.defences import NoDefence, SecureAggregation
from leakgauge.errors import InvalidCase
from leakgauge.metrics import PSNR, align
from leakgauge.models import MLP, Compact, build
from leakgauge.protocol import THREAT_MODELS, FedAvg, Federation, FedSGD, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch, Outcome

SHAPE = (3, 12, 12)
PLAIN, UNDEFENDED = FedSGD(), NoDefence()
CLASSES = ClassFishing(FullyConnected(), target=3)


@pytest.fixture(scope="module")
def images():
    test = Photos(size=12)().test
    return test.inputs[torch.randperm(len(test), generator=seeded(0))[:60]].double()


def leak(attack, module: nn.Module, batch: Batch, *, local_update=PLAIN, defence=UNDEFENDED, public=None):
    sent = attack.tamper(Federation(*learner_and_state(module.double()), local_update), ImageSpace(*SHAPE), public)
    threat_model = THREAT_MODELS["honest_but_curious"]
    seen = simulate_round(sent, batch, threat_model=threat_model, defence=defence, generator=seeded(0))
    return seen, attack(seen, generator=seeded(0))


def labelled(images, *positions: int) -> Batch:
    """Images of the classes 0 to 2, but for some of the class 3."""
    labels = torch.arange(len(images)) % 3
    labels[list(positions)] = 3
    return Batch(images, labels)


@pytest.mark.parametrize(("positions", "local_update"), [((7,), PLAIN), ((7, 20), PLAIN), ((7,), FedAvg(1, 60, 0.1))])
def test_what_is_caught_is_the_update_of_the_class_alone(positions, local_update, images):
    batch = labelled(images, *positions)
    seen, _ = leak(CLASSES, build(Compact(), SHAPE, 10, seed=0), batch, local_update=local_update)
    caught = CLASSES.catch(seen)
    assert (caught.examples, caught.observation.labels.tolist()) == (len(positions), [3] * len(positions))
    own = caught.observation.learner.gradient(caught.observation.state, batch[torch.tensor(positions)])
    for name, tensor in caught.observation.update.params.items():
        torch.testing.assert_close(tensor, own[name], rtol=1e-6, atol=1e-9 * float(tree.norm(own)))


@pytest.mark.parametrize("defence", [UNDEFENDED, SecureAggregation(6)], ids=repr)
def test_one_image_of_sixty_is_read_exactly_behind_secure_aggregation_too(defence, images):
    batch = labelled(images, 41)
    _, found = leak(CLASSES, build(MLP(hidden=(32,)), SHAPE, 10, seed=0), batch, defence=defence)
    assert found.facts["examples let through"] == 1
    torch.testing.assert_close(found.inputs, images[41:42], rtol=0, atol=1e-6)
    assert found.labels.tolist() == [3]


def test_a_batch_without_the_class_says_so(images):
    _, found = leak(CLASSES, build(MLP(hidden=(32,)), SHAPE, 10, seed=0), labelled(images))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert "no example of the class 3" in found.facts["reason"]


def test_the_chance_of_one_alone_is_that_of_a_simulation():
    draws = torch.randint(10, (20_000, 12), generator=seeded(0))
    share = float(((draws == 0).sum(dim=1) == 1).double().mean())
    assert abs(share - ClassFishing().expected_recovery(12, 10)) < 0.015


def test_a_feature_picks_one_image_of_a_class(images):
    attack = FeatureFishing(FullyConnected(), target=1, examples=12)
    caught = []
    for part in images.split(12):
        batch = Batch(part, torch.ones(12, dtype=torch.long))
        _, found = leak(attack, build(MLP(hidden=(32,)), SHAPE, 10, seed=0), batch, public=images)
        if found.facts.get("examples let through") == 1:
            scores = PSNR()(align(found, batch)).nan_to_num(0)
            caught.append(float(scores.max()))
    assert caught
    assert min(caught) > 45


def test_a_feature_does_not_pick_where_other_classes_are(images):
    attack = FeatureFishing(FullyConnected(), target=3, examples=12)
    _, found = leak(attack, build(MLP(hidden=(32,)), SHAPE, 10, seed=0), labelled(images, 5, 6), public=images)
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert "other classes" in found.facts["reason"]


def test_what_cannot_be_fished_for_is_refused(images):
    with pytest.raises(InvalidCase, match="but the model has 10"):
        leak(ClassFishing(target=10), build(MLP(), SHAPE, 10, seed=0), labelled(images))
    with pytest.raises(InvalidCase, match="at least 1"):
        FeatureFishing(examples=0)
    _, found = leak(CLASSES, build(MLP(bias=False), SHAPE, 10, seed=0), labelled(images))
    assert "no trainable bias" in found.facts["reason"]
