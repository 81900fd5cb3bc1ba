"""BN_exact, BN_proxy and BN_infer of Huang et al. [2021], for clients in train and in eval mode."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakgauge.attacks.adaptive import adapt
from leakgauge.attacks.matching import BatchNormStatistics, GradientMatching
from leakgauge.attacks.matching.priors import Absent
from leakgauge.attacks.recipes import grad_attack
from leakgauge.models import Compact, ConvNet, build
from leakgauge.protocol import THREAT_MODELS, BatchNormAccess, learner_and_state
from leakgauge.randomness import seeded

SHAPE = (3, 9, 9)
EXACT, PROXY, INFERRED = BatchNormAccess.EXACT, BatchNormAccess.PROXY, BatchNormAccess.INFERRED


@pytest.fixture
def seen(examples, attacked):
    """``seen(mode, access)``: observation, learner in the client's mode, state, batch; running statistics moved off."""
    module = build(ConvNet(width=2), SHAPE, 5, seed=0).double()
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.fill_(0.3)
    batch = examples(3, SHAPE, dtype=torch.float64)

    def observe(mode, access):
        threat_model = replace(THREAT_MODELS["informed"], batch_norm=access)
        learner, state = learner_and_state(module, mode=mode)
        return attacked(module, batch, threat_model=threat_model, mode=mode), learner, state, batch

    return observe


def test_the_names_are_those_of_the_paper():
    assert [access.published for access in (EXACT, PROXY, INFERRED)] == ["BN_exact", "BN_proxy", "BN_infer"]


# Client's mode, access: attacker's mode, whether the true batch explains the update, whose statistics R_BN aims at.
COMBINATIONS = [
    ("train", EXACT, "train", True, "batch"),
    ("train", PROXY, "eval", False, "running"),
    ("train", INFERRED, "train", True, "running"),
    ("eval", EXACT, "eval", True, "running"),
    ("eval", PROXY, "eval", True, "running"),
    ("eval", INFERRED, "eval", True, "running"),
]


@pytest.mark.parametrize(("mode", "access", "attackers", "explains", "target"), COMBINATIONS)
def test_each_side_runs_in_its_mode_and_the_prior_aims_at_the_right_statistics(
    mode, access, attackers, explains, target, seen
):
    observation, learner, state, batch = seen(mode, access)
    assert observation.learner.mode == attackers
    predicted = observation.local_update.expected(
        observation.learner, observation.state, batch, observed=observation.update.params
    )
    exact = all(torch.allclose(predicted[n], t, rtol=1e-9, atol=1e-12) for n, t in observation.update.params.items())
    assert exact is explains
    bound = BatchNormStatistics().bind(observation)
    own = learner.in_mode("train").batch_statistics(state, batch.inputs)
    for name, mean in bound.target.mean.items():
        running = state.buffers[f"{name}.running_mean"]
        assert torch.equal(mean, own.mean[name] if target == "batch" else running)
        assert not torch.equal(own.mean[name], running)
    # The true batch pays nothing only where its own statistics are the target.
    assert (float(bound(batch.inputs[None])) == 0) is (target == "batch")


@pytest.mark.parametrize(("mode", "access"), [(mode, access) for mode, access, *_ in COMBINATIONS])
def test_an_adaptive_attack_uses_statistics_exactly_where_they_are_given(mode, access, seen):
    observation, *_ = seen(mode, access)
    priors = adapt(GradientMatching(), observation).priors
    assert priors == ((BatchNormStatistics(5e-3),) if (mode, access) == ("train", EXACT) else ())
    own = GradientMatching(priors=(BatchNormStatistics(0.7),))
    assert adapt(own, observation).priors == own.priors


@pytest.mark.parametrize(("mode", "access"), [(mode, access) for mode, access, *_ in COMBINATIONS])
def test_hidden_labels_are_found_along_with_the_images_whatever_is_known_of_the_statistics(mode, access, seen):
    observation, *_, batch = seen(mode, access)
    given, hidden = (
        grad_attack(steps=3).search([replace(observation, labels=labels)], generator=seeded(0))
        for labels in (batch.labels, None)
    )
    assert given.unknowns.classes is None
    assert hidden.unknowns.classes == 5
    start = hidden.unknowns.split(hidden.state.candidate).logits.clone()
    for search in (given, hidden):
        while search.outcome is None:
            search.step()
    assert not torch.equal(hidden.unknowns.split(hidden.state.candidate).logits, start)
    assert torch.equal(given.results()[0].labels, batch.labels)
    assert hidden.results()[0].labels.shape == batch.labels.shape
    # All terms of Eq. 3 are in force: R_BN has something to aim at in every case.
    assert [type(prior).__name__ for prior in hidden.phase.priors] == ["AnisotropicTotalVariation", "_BoundStatistics"]


def test_a_model_without_batch_norm_has_no_such_prior(examples, attacked):
    module = build(Compact(width=3), SHAPE, 5, seed=0)
    seen = attacked(module, examples(2, SHAPE), threat_model="strongest", mode="train")
    assert BatchNormStatistics().bind(seen) == Absent()
    assert adapt(GradientMatching(), seen).priors == ()
