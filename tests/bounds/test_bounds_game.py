"""The attacker who knows all but one example: near the bound, never above it, and at chance where nothing is said."""

from __future__ import annotations

import pytest
import torch
from bounds_support import given, linear_learner
from scipy.integrate import quad
from scipy.stats import norm

from leakgauge.attacks.prior_aware import PriorAware
from leakgauge.bounds import gaussian_bound
from leakgauge.bounds.game import Game, worst_case
from leakgauge.defences import DPSGD, GaussianNoise, NoDefence
from leakgauge.errors import InvalidCase
from leakgauge.models import MLP
from leakgauge.models.base import build
from leakgauge.protocol import THREAT_MODELS, Federation, FedSGD, learner_and_state, simulate_round
from leakgauge.protocol.facts import Subject
from leakgauge.randomness import seeded
from leakgauge.space import TableSpace
from leakgauge.types import Batch


def orthogonal(shift: float, count: int) -> float:
    """How often the best attacker is right among so many orthogonal gradients."""
    return quad(lambda x: norm.pdf(x - shift) * norm.cdf(x) ** (count - 1), -10, 20)[0]


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_one_full_batch_step_is_detected_as_often_as_the_bound_says(noise):
    bound = gaussian_bound(noise, crowd=99).at_most
    found = worst_case(noise, crowd=99, rounds=1, sampling=1.0, times=10_000, generator=seeded(0, "worst"))
    assert found.detected.mean == pytest.approx(bound, abs=0.015)
    # Among orthogonal candidates the best attacker is a little further off: no hundred half-spaces fill the space.
    assert found.identified.mean == pytest.approx(orthogonal(1 / noise, 100), abs=0.015)
    assert found.identified.low <= bound


@pytest.mark.parametrize("crowd", [9, 99])
@pytest.mark.parametrize(("noise", "sampling", "rounds"), [(0.5, 0.1, 10), (1.0, 0.01, 30), (4.0, 1.0, 100)])
def test_no_success_is_above_the_bound(noise, sampling, rounds, crowd):
    bound = gaussian_bound(noise, crowd=crowd, rounds=rounds, sampling=sampling).at_most
    generator = seeded(0, "grid", crowd)
    found = worst_case(noise, crowd=crowd, rounds=rounds, sampling=sampling, times=3000, generator=generator)
    assert found.identified.low <= bound
    assert found.detected.low <= bound <= found.detected.high + 0.01


@pytest.fixture(scope="module")
def network():
    """A small network on rows of eleven cells, with twelve candidates of three classes and three known examples."""
    module = build(MLP(hidden=(8,)), (11,), 3, seed=0)
    learner, state = learner_and_state(module)
    generator = seeded(0, "rows")
    inputs, labels = torch.randn(15, 11, generator=generator), torch.arange(15) % 3
    return learner, state, Batch(inputs[:12], labels[:12]), Batch(inputs[12:], labels[12:])


def test_a_real_network_gives_no_more_away_than_the_bound_and_more_than_chance(network):
    learner, state, candidates, rest = network
    client = DPSGD(max_grad_norm=0.1, noise_multiplier=0.5)(FedSGD())
    found = Game(learner, state, client, candidates, rest).play(150, generator=seeded(0, "game"))
    assert found.identified.low <= found.bound.at_most
    assert found.identified.low > 1 / 12
    told = {fact.subject: fact.words for fact in found.ledger}
    assert "all other private examples" in told[Subject.REST]
    assert "12 inputs" in told[Subject.CANDIDATES]


def test_rounds_of_a_model_that_moves_stay_below_the_bound(network):
    learner, state, candidates, rest = network
    client = DPSGD(max_grad_norm=0.1, noise_multiplier=2.0)(FedSGD())
    game = Game(learner, state, client, candidates, rest, rounds=3, sampling=0.5, learning_rate=0.1)
    found = game.play(20, generator=seeded(0, "game"))
    assert found.bound.rounds == 3
    assert found.identified.low <= found.bound.at_most


def test_without_noise_the_attacker_is_always_right_and_there_is_no_bound(network):
    learner, state, candidates, rest = network
    client = DPSGD(max_grad_norm=0.1, noise_multiplier=0.0)(FedSGD())
    found = Game(learner, state, client, candidates, rest).play(10, generator=seeded(0, "game"))
    assert found.identified.mean == 1.0
    assert found.bound.at_most is None


def test_opposite_gradients_meet_the_bound_of_two_candidates():
    learner, state = linear_learner(3)
    candidates = given(torch.tensor([[3.0, 0, 0], [-3.0, 0, 0]]))
    client = DPSGD(noise_multiplier=1.0)(FedSGD())
    found = Game(learner, state, client, candidates).play(250, generator=seeded(0, "opposite"))
    assert found.bound.at_most == pytest.approx(norm.cdf(1.0))
    assert found.identified.low <= found.bound.at_most <= found.identified.high


def test_of_any_client_the_nearest_candidate_is_taken(network):
    learner, state, candidates, rest = network
    attack = PriorAware(candidates, rest)
    federation = Federation(learner, state, space=TableSpace.of(candidates.inputs, tuple("abcdefghijk")))
    truth = Batch(torch.cat([rest.inputs, candidates.inputs[7:8]]), torch.cat([rest.labels, candidates.labels[7:8]]))
    for defence in (NoDefence(), GaussianNoise(1e-4), DPSGD(0.1, 0.01)):
        seen = simulate_round(
            federation, truth, threat_model=THREAT_MODELS["informed"], defence=defence, generator=seeded(0, "round")
        )
        assert attack.choose([seen, seen]) == 7
        assert torch.equal(attack(seen, generator=seeded(0)).inputs, truth.inputs)


def test_what_cannot_be_played_is_refused(network):
    learner, state, candidates, _ = network
    with pytest.raises(InvalidCase, match="at least 2 candidates"):
        PriorAware(candidates[slice(0, 1)])
    with pytest.raises(InvalidCase, match="wrap FedSGD in DPSGD"):
        Game(learner, state, FedSGD(), candidates)
    alone = Game(learner, state, DPSGD()(FedSGD()), candidates, sampling=1e-9)
    with pytest.raises(InvalidCase, match="give it a rest"):
        alone.play(1, generator=seeded(0))
