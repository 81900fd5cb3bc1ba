"""Exact attacks answer where they apply, with a certificate or by the spans, and say so at once where they do not."""

from __future__ import annotations

import torch
from torch import nn

from leakgauge import best
from leakgauge.attacks.recipes.exact import Exact, exact
from leakgauge.audit import plan
from leakgauge.data import reference_inputs
from leakgauge.defences import NoDefence
from leakgauge.metrics import PSNR, align
from leakgauge.models import MLP, LeNet, build
from leakgauge.protocol import THREAT_MODELS, Federation, FedSGD, UpdateObservation, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch, Outcome

SHAPE = (3, 16, 16)


def private(count: int) -> Batch:
    return Batch(reference_inputs(ImageSpace(*SHAPE), count, generator=seeded(1)), torch.arange(count) % 5)


def observe(module: nn.Module, batch: Batch) -> UpdateObservation:
    learner, state = learner_and_state(module.eval())
    return simulate_round(
        Federation(learner, state, FedSGD()),
        batch,
        threat_model=THREAT_MODELS["informed"],
        defence=NoDefence(),
        generator=seeded(0),
    )


def test_a_closed_form_certifies_itself_and_best_gives_the_same_answer() -> None:
    victim = private(3)
    seen = observe(build(MLP(), SHAPE, 5, seed=0), victim)
    found = exact()(seen, generator=seeded(0))
    assert found.certificate is not None
    assert float(PSNR()(align(found, victim)).min()) > 80
    assert torch.equal(found.inputs, best(steps=5)(seen, generator=seeded(0)).inputs)


def test_where_layers_span_their_inputs_span_matching_is_what_runs() -> None:
    wide = nn.Sequential(
        nn.Conv2d(3, 12, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 80, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(80, 80, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(80, 80, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(80, 5),
    )
    seen = observe(wide, private(1))
    found = Exact(exact(steps=3).budget)(seen, generator=seeded(0))
    assert found.outcome is not Outcome.NOT_APPLICABLE
    assert found.facts["steps"] == 3
    assert found.certificate is None


def test_narrow_networks_are_refused_at_once_with_a_reason() -> None:
    found = exact()(observe(build(LeNet(), SHAPE, 5, seed=0), private(2)), generator=seeded(0))
    assert found.outcome is Outcome.NOT_APPLICABLE
    assert "spans" in str(found.facts["reason"])


def test_an_audit_that_names_no_attack_tries_what_is_exact() -> None:
    assert "exact" in plan.default_attacks(ImageSpace(*SHAPE))
