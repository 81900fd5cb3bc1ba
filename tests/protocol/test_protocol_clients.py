"""What a client is made of is read in one place, and every place that asks sees DP-SGD."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakgauge.attacks.adaptive.attack import adapt
from leakgauge.attacks.analytic.linear_layer import one_gradient
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.federated import EpochCopies, LocalStepSearch
from leakgauge.attacks.labels import ILRG, LLG, HeadMatching
from leakgauge.attacks.matching import GradientMatching
from leakgauge.attacks.matching.differentiation.matcher import is_step_by_step
from leakgauge.attacks.matching.objectives import Cosine, Euclidean
from leakgauge.attacks.matching.surrogate import as_one_gradient, nearly_straight
from leakgauge.defences import (
    DPSGD,
    Clipping,
    GaussianNoise,
    InstaHide,
    LaplaceNoise,
    MixUp,
    NoDefence,
    Pruning,
    SecureAggregation,
    chain,
)
from leakgauge.models import MLP, build
from leakgauge.protocol import THREAT_MODELS, FedAvg, FedSGD, learner_and_state
from leakgauge.protocol.clients import (
    algorithm,
    clients_behind,
    computation,
    departure,
    finishing,
    flips_signs,
    layers,
    local_steps,
    merge_clients,
    mixes,
    transforms,
    with_algorithm,
    with_computation,
)
from leakgauge.protocol.local_update import Departure
from leakgauge.protocol.wrappers import Private
from leakgauge.randomness import seeded

SHAPE = (1, 4, 4)
LOOSE = DPSGD(max_grad_norm=1e6, noise_multiplier=0.0)
"""Clips nothing and adds nothing: what is found behind it must be what is found without it."""

PRIVATE = Private(FedSGD(), 1.0, 1.0)


@pytest.fixture
def net() -> torch.nn.Module:
    return build(MLP(hidden=(12,)), SHAPE, 4, seed=0)


@pytest.fixture
def short() -> GradientMatching:
    return GradientMatching(budget=Budget(steps=2))


def test_a_client_is_read_from_the_outside_in():
    client = chain(MixUp(2), DPSGD(), Pruning(0.5), SecureAggregation(3), Clipping(1.0))(FedAvg())
    assert algorithm(client) == layers(client)[-1] == FedAvg()
    assert transforms(client) == [MixUp(2), Pruning(0.5), Clipping(1.0)]
    assert finishing(client) == [Clipping(1.0)]
    assert clients_behind(client) == clients_behind(computation(client)) == 3
    assert with_algorithm(client, FedSGD()) == chain(
        MixUp(2), DPSGD(), Pruning(0.5), SecureAggregation(3), Clipping(1.0)
    )(FedSGD())
    assert with_computation(client, FedSGD()) == Clipping(1.0)(FedSGD())
    assert algorithm(None) is None
    assert layers(None) == transforms(None) == []


@pytest.mark.parametrize(
    ("defence", "expected"),
    [
        (NoDefence(), Departure.NONE),
        (Clipping(1.0), Departure.LENGTH),
        (chain(Clipping(1.0), LaplaceNoise(0.1)), Departure.LAPLACE),
        (chain(LaplaceNoise(0.1), GaussianNoise(0.1), Clipping(1.0)), Departure.GAUSSIAN),
        (chain(DPSGD(), Clipping(1.0), SecureAggregation(2)), Departure.GAUSSIAN),
        (DPSGD(1.0, 0.0), Departure.NONE),
    ],
    ids=repr,
)
def test_of_several_departures_noise_decides(defence, expected):
    assert departure(defence(FedSGD())) is expected
    assert departure(None) is Departure.NONE


def test_mixing_and_flipped_signs_are_seen_under_any_wrapper():
    for wrap in (NoDefence(), Pruning(), SecureAggregation(2)):
        assert not mixes(chain(DPSGD(), wrap)(FedSGD()))
        for mixer, flips in ((MixUp(2), False), (InstaHide(2), True)):
            client = chain(mixer, wrap)(FedSGD())
            assert mixes(client)
            assert flips_signs(client) is flips


def test_steps_are_those_of_one_client():
    averaging = FedAvg(epochs=2, batch_size=2)
    for defence in (NoDefence(), Pruning(), DPSGD()):
        assert local_steps(defence(averaging), 8) == 8
        assert local_steps(chain(defence, SecureAggregation(2))(averaging), 8) == 4
        assert local_steps(defence(FedSGD()), 8) == 1
    assert local_steps(None, 8) is None


def test_clients_who_meet_nowhere_are_one(net):
    learner, _ = learner_and_state(net)
    assert merge_clients(chain(DPSGD(), SecureAggregation(2), Pruning())(FedSGD()), learner) == Pruning()(PRIVATE)
    kept = chain(Pruning(), SecureAggregation(2))(FedSGD())
    assert merge_clients(kept, learner) == kept


# Every place that asks sees DP-SGD


@pytest.mark.parametrize("client", [FedSGD(), FedAvg(2, 2, 1e-3)], ids=repr)
@pytest.mark.parametrize("rule", [ILRG(), LLG(), HeadMatching()], ids=lambda rule: type(rule).__name__)
def test_labels_are_restored_behind_it(rule, client, net, examples, attacked):
    batch = examples(4, SHAPE, 4)
    plain, private = (
        attacked(net, batch, local_update=client, defence=defence, threat_model="honest_but_curious")
        for defence in (NoDefence(), LOOSE)
    )
    expected = rule.restore(plain, generator=seeded(0))
    assert rule.restore(private, generator=seeded(0)).tolist() == expected.tolist()


def test_one_clipped_gradient_is_still_one_gradient(net, examples, attacked):
    assert one_gradient(PRIVATE)
    assert one_gradient(LOOSE(FedAvg(epochs=1)))
    assert not one_gradient(LOOSE(FedAvg(epochs=2)))
    seen = attacked(net, examples(2, SHAPE, 4), defence=DPSGD())
    assert as_one_gradient(seen) is seen


def test_many_private_steps_are_as_straight_as_many_plain_ones(net, examples, attacked):
    batch = examples(4, SHAPE, 4)
    plain, private = (
        attacked(net, batch, local_update=FedAvg(2, 2, 1e-5), defence=defence) for defence in (NoDefence(), LOOSE)
    )
    assert nearly_straight(plain)
    assert nearly_straight(private)
    one = as_one_gradient(private)
    assert one.local_update == LOOSE(FedSGD())
    for name, tensor in as_one_gradient(plain).state.params.items():
        torch.testing.assert_close(one.state.params[name], tensor)


def test_local_epochs_are_sought_and_copied_inside_it(short, net, examples, attacked):
    seen = attacked(net, examples(2, SHAPE, 4), local_update=FedAvg(2, 1, 0.1), defence=chain(LOOSE, Pruning(0.9)))
    assert "epochs" in LocalStepSearch(short, epochs=(1, 2))(seen, generator=seeded(0)).facts
    assert EpochCopies(short)(seen, generator=seeded(0)).facts["copies"] == 2
    together = replace(seen, local_update=SecureAggregation(2)(FedAvg(2, 1, 0.1)))
    assert "copies" not in EpochCopies(short)(together, generator=seeded(0)).facts


def test_the_distance_route_and_ledger_know_it(short, net, examples, attacked):
    seen = attacked(net, examples(2, SHAPE, 4), defence=chain(DPSGD(), Pruning()))
    assert adapt(replace(short, objective=Cosine()), seen).objective == Euclidean()
    assert not is_step_by_step(seen.local_update)
    learner, _ = learner_and_state(net)
    client = chain(MixUp(2), SecureAggregation(2), DPSGD())(FedSGD())
    facts = {fact.name: fact.detail for fact in THREAT_MODELS["informed"].ledger(learner, client=client)}
    assert "mean of 2 clients" in facts["update"]
    assert "mixing" in facts
