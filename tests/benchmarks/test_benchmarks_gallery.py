"""Architectures as users write them: none is refused by any attack, and every derivative is double backward's."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from architectures import ARCHITECTURES, build
from leakgauge.attacks.adaptive import adaptive
from leakgauge.attacks.labels.best import BestLabels
from leakgauge.attacks.matching import Cosine, DoubleBackward, Tangent
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.attacks.recipes import inverting_gradients
from leakgauge.attacks.recipes.best import best, family_of
from leakgauge.protocol import FedSGD, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 32, 32)


def _batch(seed: int, dtype: torch.dtype) -> Batch:
    return Batch(torch.rand(1, *SHAPE, generator=seeded(seed, "gallery"), dtype=dtype), torch.tensor([3]))


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_derivative_through_an_architecture_is_that_of_double_backward(name):
    learner, state = learner_and_state(build(name).double())
    truth, candidate = (_batch(seed, torch.float64) for seed in (0, 1))
    observed = {key: tensor.detach() for key, tensor in learner.gradient(state, truth).items()}
    problem = MatchingProblem(learner, state, FedSGD(), observed, Cosine(), truth.labels)
    graph = DoubleBackward().resolve(problem, candidate.inputs)
    exact, swept = (route.one(problem, candidate.inputs) for route in (graph, Tangent()))
    torch.testing.assert_close(swept.value, exact.value, rtol=1e-9, atol=1e-13)
    assert _error(swept.gradient, exact.gradient) < 1e-9


@pytest.mark.parametrize(
    ("name", "attack"),
    list(zip(ARCHITECTURES, itertools.cycle((best, adaptive, inverting_gradients)))),  # they differentiate by one route
)
def test_no_attack_refuses_an_architecture(name, attack, attacked):
    seen = attacked(build(name), _batch(0, torch.float32))
    found = attack(steps=1)(seen, generator=seeded(0))
    assert found.inputs is not None
    assert "FiniteDifference" not in str(found.facts["route"])
    assert BestLabels()(seen, generator=seeded(0)).labels.tolist() == [3]


FAMILIES = {
    "convnext": "smooth",
    "vit, MultiheadAttention": "smooth",
    "mobilenet v3": "residual",
    "inception": "switching",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_family_of_an_architecture_is_that_of_its_layers(name, attacked):
    assert family_of(attacked(build(name), _batch(0, torch.float32))) == FAMILIES[name]
