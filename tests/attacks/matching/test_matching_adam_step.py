"""One step of Adam gives its gradient away: exactly in float64, in part in float32, and by its signs in any case."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakgauge.attacks.analytic import FullyConnected, LinearLayer
from leakgauge.attacks.matching.adam_step import (
    ReadGradient,
    SmoothSigns,
    SoftAdam,
    is_one_adam_step,
    read_gradient,
    soften_adam,
)
from leakgauge.attacks.recipes import quasi_newton
from leakgauge.data import reference_inputs
from leakgauge.models import MLP, Compact
from leakgauge.models import build as build_model
from leakgauge.protocol import FedAvg, FedSGD, LocalAdam, LocalAdamW, LocalSGD
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.types import Batch, Outcome

SHAPE = (3, 16, 16)
ADAM = FedAvg(1, 8, 1e-3, optimiser=LocalAdam())


@pytest.fixture(scope="module")
def photograph() -> Batch:
    images = reference_inputs(ImageSpace(*SHAPE), 8, generator=seeded(3, "photograph"))
    return Batch(images[:1], torch.tensor([2]))


@pytest.mark.parametrize(
    "optimiser",
    [LocalAdam(), LocalAdam(0.5, 0.9, 1e-6, weight_decay=0.1), LocalAdamW(weight_decay=0.3)],
    ids=["adam", "decay", "adamw"],
)
def test_in_float64_the_step_is_the_gradient(optimiser, examples, attacked):
    module, batch = build_model(Compact(width=4), SHAPE, 5, seed=1).double(), examples(2, SHAPE, dtype=torch.float64)
    gradient = attacked(module, batch).update.params
    seen = attacked(module, batch, local_update=replace(ADAM, optimiser=optimiser))
    assert is_one_adam_step(seen)
    read, objective = read_gradient(seen)
    assert read.local_update == FedSGD()
    assert objective == ReadGradient()
    for name, tensor in gradient.items():
        assert torch.allclose(read.update.params[name], tensor, rtol=1e-3, atol=1e-12)
    assert float(objective(gradient, read.update.params)) < 1e-6


def test_the_stated_errors_hold_the_gradient(photograph, attacked):
    module = build_model(Compact(width=8), SHAPE, 5, seed=1)
    gradient = attacked(module, photograph).update.params
    read, _ = read_gradient(attacked(module, photograph, local_update=ADAM))
    for name, tensor in gradient.items():
        found, error = read.update.params[name], read.update.params[f"{name} +-"]
        assert torch.equal(found.sign(), tensor.sign())
        known = error <= 0.25 * found.abs()
        assert bool(((found - tensor).abs() <= 3 * error + 1e-9)[known].all())
        assert bool((tensor.abs() >= 0.3 * found.abs())[~known].all())


def test_an_image_comes_back_from_one_step_of_adam(photograph, attacked):
    """Matched as it is, the step has no slope, and what comes back is grey: 11 dB."""
    seen = attacked(build_model(Compact(width=16), SHAPE, 5, seed=1), photograph, local_update=ADAM)
    found = quasi_newton(steps=120)(seen, generator=seeded(0)).inputs
    assert float((found - photograph.inputs).square().mean()) < 1e-3  # 30 dB


def test_signs_alone_are_matched_where_no_size_is_left(photograph, attacked):
    module = build_model(Compact(width=4), SHAPE, 5, seed=1)
    seen = attacked(module, photograph, local_update=replace(ADAM, optimiser=LocalAdam(eps=1e-16)))
    read, objective = read_gradient(seen)
    assert objective == SmoothSigns()
    gradient = attacked(module, photograph).update.params
    flipped = {name: -tensor for name, tensor in gradient.items()}
    assert float(objective(gradient, read.update.params)) < 0.3 < 1.7 < float(objective(flipped, read.update.params))


@pytest.mark.parametrize(
    "client",
    [
        FedAvg(2, 8, 1e-3, optimiser=LocalAdam()),
        FedAvg(1, 8, 1e-3, optimiser=LocalAdam(), clip_norm=1.0),
        FedAvg(1, 8, 1e-3),
        FedSGD(),
    ],
    ids=["two steps", "clipped", "sgd", "fedsgd"],
)
def test_other_clients_are_matched_as_they_are(client, photograph, attacked):
    assert not is_one_adam_step(
        attacked(build_model(Compact(width=4), SHAPE, 5, seed=1), photograph, local_update=client)
    )


def test_several_steps_are_softened_and_nothing_else_changes(photograph, attacked):
    module = build_model(Compact(width=4), SHAPE, 5, seed=1)
    several = FedAvg(2, 8, 1e-3, optimiser=LocalAdamW(), proximal=0.1)
    seen = attacked(module, photograph, local_update=several)
    soft = soften_adam(seen)
    assert soft.local_update == replace(several, optimiser=SoftAdam(LocalAdamW()))
    assert soft.update is seen.update
    hard = replace(soft.local_update, optimiser=SoftAdam(LocalAdamW(), softness=0.0))
    expected = hard.expected(seen.learner, seen.state, photograph, observed={})
    for name, tensor in seen.update.params.items():
        assert torch.allclose(expected[name], tensor, rtol=1e-3, atol=1e-7)
    plain = attacked(module, photograph, local_update=FedAvg(2, 8, 1e-3))
    assert soften_adam(plain) is plain


@pytest.mark.parametrize("attack", [LinearLayer(), FullyConnected()], ids=repr)
def test_a_closed_form_takes_off_weight_decay_and_refuses_what_is_no_gradient(attack, examples, attacked):
    module, batch = build_model(MLP(hidden=(8,)), SHAPE, 5, seed=1).double(), examples(1, SHAPE, dtype=torch.float64)
    decayed = attacked(module, batch, local_update=FedAvg(1, 1, 0.1, optimiser=LocalSGD(0.9, weight_decay=0.2)))
    assert torch.allclose(attack(decayed, generator=seeded(0)).inputs, batch.inputs, atol=1e-8)
    for client in (ADAM, FedAvg(2, 1, 0.1, proximal=0.1)):
        found = attack(attacked(module, batch, local_update=client), generator=seeded(0))
        assert found.outcome is Outcome.NOT_APPLICABLE
        assert "gradient" in found.facts["reason"]
