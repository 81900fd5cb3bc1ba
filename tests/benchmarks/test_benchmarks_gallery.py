"""Architectures as users write them: none is refused by any attack, and every derivative is double backward's."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from architectures import ARCHITECTURES, build
from gallery import compare, why_not
from leakgauge.attacks.adaptive import adaptive
from leakgauge.attacks.labels.best import BestLabels
from leakgauge.attacks.matching import Cosine, DoubleBackward, Tangent
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.attacks.recipes import inverting_gradients
from leakgauge.attacks.recipes.best import best
from leakgauge.attacks.recipes.families import family_of
from leakgauge.protocol import FedSGD, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 32, 32)


def _batch(seed: int, dtype: torch.dtype) -> Batch:
    return Batch(torch.rand(1, *SHAPE, generator=seeded(seed, "gallery"), dtype=dtype), torch.tensor([3]))


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.slow
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


# The attacks differentiate by one route.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "attack"), [*zip(ARCHITECTURES, itertools.cycle((best, adaptive, inverting_gradients)), strict=False)]
)
def test_no_attack_refuses_an_architecture(name, attack, attacked):
    seen = attacked(build(name), _batch(0, torch.float32))
    found = attack(steps=1)(seen, generator=seeded(0))
    assert found.inputs is not None
    assert "FiniteDifference" not in str(found.facts["route"])
    assert BestLabels()(seen, generator=seeded(0)).labels.tolist() == [3]


FAMILIES = {
    "convnext": "smooth",
    "vit, MultiheadAttention": "transformer",
    "mobilenet v3": "residual",
    "inception": "switching",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_family_of_an_architecture_is_that_of_its_layers(name, attacked):
    assert family_of(attacked(build(name), _batch(0, torch.float32))) == FAMILIES[name]


ROW = {"identified": False, "identified_elsewhere": False, "angle": 1e-3, "half_angle": 1e-2}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"identified": True}, None),
        ({"identified_elsewhere": True}, "only when moved"),
        ({"angle": 0.1}, "did not come to its end"),
        ({}, "another picture"),
    ],
)
def test_the_page_says_why_an_original_is_not_identified(change, reason):
    found = why_not(ROW | change)
    assert found is None if reason is None else reason in found


def test_a_picture_found_at_another_place_is_told_from_one_that_was_not_found():
    pictures = torch.rand(8, *SHAPE, generator=seeded(0, "pictures"))
    truth, crowd = pictures[0], pictures[1:]
    moved = compare(truth, crowd, truth.roll(9, dims=2), crowd[0])
    assert (moved["identified"], moved["identified_elsewhere"], moved["null_identified"]) == (False, True, False)
    assert compare(truth, crowd, 0.5 + 0.9 * (truth - 0.5), crowd[0])["identified"]
