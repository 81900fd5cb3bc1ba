"""Distances and priors against their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge import params as tree
from leakgauge.attacks.matching import (
    L1,
    AnisotropicTotalVariation,
    Cosine,
    CosineByTensor,
    Euclidean,
    Geometric,
    Latest,
    PixelNorm,
    Pixels,
    Stepwise,
    TotalVariation,
    Uniform,
)
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.defences import Clipping, Pruning, chain
from leakgauge.errors import InvalidCase
from leakgauge.protocol import FedSGD, clients
from leakgauge.randomness import seeded
from leakgauge.types import ParamTree

OBJECTIVES = [
    Cosine(), Euclidean(), L1(), Cosine(Geometric(0.7)), Euclidean(Geometric(1.5)), L1(Geometric(0.7)),
    CosineByTensor(), CosineByTensor(("head.weight",)),
]  # fmt: skip
SCALES = st.floats(1e-12, 1e9)


def update(seed: int, dtype: torch.dtype = torch.float64) -> ParamTree:
    generator = seeded(seed, "update")
    shapes = {"conv.weight": (4, 3, 3, 3), "conv.bias": (4,), "head.weight": (5, 7)}
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for name, shape in shapes.items()
    }


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 999), scale=SCALES, dtype=st.sampled_from([torch.float32, torch.float64]))
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_the_distance_of_an_update_to_itself_is_zero(objective, seed, scale, dtype):
    one = tree.scale(update(seed, dtype), scale)
    assert abs(float(objective(one, one))) < 8 * torch.finfo(dtype).eps


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 999), left=SCALES, right=SCALES, dtype=st.sampled_from([torch.float32, torch.float64]))
def test_cosine_is_blind_to_length(seed, left, right, dtype):
    one, two = update(seed, dtype), update(seed + 1, dtype)
    expected = Cosine()(update(seed), update(seed + 1))
    scaled = Cosine()(tree.scale(one, left), tree.scale(two, right))
    assert abs(float(scaled) - float(expected)) < 20 * torch.finfo(dtype).eps


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 999), scale=SCALES, dtype=st.sampled_from([torch.float32, torch.float64]))
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_a_distance_is_blind_to_the_unit_of_the_update(objective, seed, scale, dtype):
    one, two = update(seed, dtype), update(seed + 1, dtype)
    expected = float(objective(update(seed), update(seed + 1)))
    scaled = float(objective(tree.scale(one, scale), tree.scale(two, scale)))
    assert scaled == pytest.approx(expected, rel=50 * torch.finfo(dtype).eps)


def test_distances_are_their_formulas():
    one, two = update(0), update(1)
    a, b = tree.flatten(one), tree.flatten(two)
    close = {"rel": 1e-12}
    assert float(Cosine()(one, two)) == pytest.approx(1 - float(a @ b) / float(a.norm() * b.norm()), **close)
    assert float(Euclidean()(one, two)) == pytest.approx(float((a - b).square().sum() / b.square().sum()), **close)
    assert float(L1()(one, two)) == pytest.approx(float((a - b).abs().sum() / b.abs().sum()), **close)


def test_the_angle_by_tensor_is_the_mean_of_their_angles_and_half_of_it_that_of_the_rows_of_tables():
    one, two = update(0), update(1)
    angles = {name: float(Cosine()({name: one[name]}, {name: two[name]})) for name in one}
    assert float(CosineByTensor()(one, two)) == pytest.approx(sum(angles.values()) / 3, rel=1e-12)
    rows = [float(Cosine()({"row": a}, {"row": b})) for a, b in zip(one["head.weight"], two["head.weight"])]
    expected = (angles["conv.weight"] + angles["conv.bias"]) / 4 + sum(rows) / len(rows) / 2
    assert float(CosineByTensor(("head.weight",))(one, two)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("share", "counts"), [(1e-4, True), (1e-8, False)])
def test_a_tensor_that_is_nothing_but_rounding_has_no_say_in_the_angle_by_tensor(share, counts):
    one, two = update(0, torch.float32), update(1, torch.float32)
    without = float(CosineByTensor()(*({"conv.weight": u["conv.weight"]} for u in (one, two))))
    short = [{"conv.weight": u["conv.weight"], "conv.bias": share * u["conv.bias"]} for u in (one, two)]
    assert (float(CosineByTensor()(*short)) != pytest.approx(without, rel=1e-5)) is counts


@pytest.mark.parametrize("kind", [Cosine, Euclidean, L1])
def test_weights_multiply_both_updates_tensor_by_tensor(kind):
    one, two = update(0), update(1)
    weighted = [
        {name: 0.7**index * tensor for index, (name, tensor) in enumerate(params.items())} for params in (one, two)
    ]
    assert float(kind(Geometric(0.7))(one, two)) == pytest.approx(float(kind()(*weighted)), rel=1e-12)
    assert float(kind(Geometric(1.0))(one, two)) == float(kind(Uniform())(one, two)) == float(kind()(one, two))


def test_cosine_of_opposites_is_two_and_of_orthogonals_one():
    one = {"w": torch.tensor([1.0, 0.0])}
    assert float(Cosine()(one, tree.scale(one, -3.0))) == 2
    assert float(Cosine()(one, {"w": torch.tensor([0.0, 5.0])})) == 1


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_a_vanishing_update_has_a_finite_distance_and_derivative(objective):
    zero = tree.scale(update(0), 0.0)
    for one, two in ((zero, update(1)), (update(1), zero), (zero, zero)):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in one.items()}
        value = objective(leaves, two)
        gradients = torch.autograd.grad(value, list(leaves.values()))
        assert math.isfinite(float(value.detach()))
        assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)


def by_autograd(objective: Objective, one: ParamTree, two: ParamTree) -> tuple[torch.Tensor, ParamTree]:
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in one.items()}
    value = objective(leaves, two)
    return value.detach(), dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True))


DIRECTED = [*OBJECTIVES, *(kind(Latest(share)) for kind in (Cosine, Euclidean) for share in (0.1, 0.7)), Stepwise()]


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 999), left=st.floats(1e-9, 1e6), right=st.floats(1e-9, 1e6))
@pytest.mark.parametrize("objective", DIRECTED, ids=repr)
def test_the_direction_of_a_distance_is_its_derivative(objective, seed, left, right):
    one, two = tree.scale(update(seed), left), tree.scale(update(seed + 1), right)
    kept = tree.map_tensors(torch.clone, two)
    expected, gradient = by_autograd(objective, one, two)
    value, direction = objective.direction(tree.map_tensors(torch.clone, one), two)
    assert float(value) == pytest.approx(float(expected), rel=1e-12)
    assert list(direction) == list(one)
    length = tree.norm(gradient)
    assert tree.norm(tree.sub(direction, gradient)) < 1e-12 * length
    assert all(torch.equal(two[name], kept[name]) for name in kept)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.parametrize("defence", [Pruning(0.4), Clipping(0.1), chain(Clipping(0.1), Pruning(0.4))], ids=repr)
def test_the_direction_through_what_a_client_does_to_its_update_is_that_of_the_whole(defence, objective):
    candidate, client = update(1), defence(FedSGD())
    observed = update(2)
    for transform in clients.finishing(client):
        observed = transform.transform(observed, generator=seeded(0))
    problem = MatchingProblem(None, None, client, observed, objective, None)
    finished = leaves = {name: tensor.clone().requires_grad_() for name, tensor in candidate.items()}
    for transform in clients.finishing(client):
        finished = transform.anticipate(finished, observed=observed)
    wanted = objective(finished, observed)
    slopes = torch.autograd.grad(wanted, list(leaves.values()))
    value, direction = problem.direction(tree.map_tensors(torch.clone, candidate))
    assert float(value) == pytest.approx(float(wanted.detach()), rel=1e-9)
    for found, slope in zip(direction.values(), slopes, strict=True):
        torch.testing.assert_close(found, slope, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("objective", [Cosine(), Cosine(Geometric(0.7)), Cosine(Latest(0.4)), Euclidean()], ids=repr)
@pytest.mark.parametrize("scales", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (1e-18, 1.0), (1.0, 1e-18)])
def test_the_direction_is_the_derivative_where_an_update_vanishes(objective, scales):
    one, two = (tree.scale(update(seed), scale) for seed, scale in enumerate(scales))
    expected, gradient = by_autograd(objective, one, two)
    value, direction = objective.direction(tree.map_tensors(torch.clone, one), two)
    assert float(value) == pytest.approx(float(expected), rel=1e-12)
    assert tree.norm(tree.sub(direction, gradient)) <= 1e-9 * tree.norm(gradient)


@pytest.mark.parametrize("objective", DIRECTED, ids=repr)
def test_a_distance_to_what_is_not_a_number_is_none(objective):
    broken = tree.map_tensors(lambda tensor: torch.full_like(tensor, math.nan), update(0))
    assert math.isnan(float(objective(broken, update(1))))
    assert math.isnan(float(objective.direction(tree.map_tensors(torch.clone, broken), update(1))[0]))


def test_near_the_solution_the_cosine_keeps_its_digits_in_float32():
    one = update(0)
    two = tree.add(one, update(1), scale=1e-5)
    exact, gradient = by_autograd(Cosine(), one, two)
    narrow = [tree.map_tensors(torch.Tensor.float, tensors) for tensors in (one, two)]
    value, direction = Cosine().direction(*narrow)
    assert float(value) == pytest.approx(float(exact), rel=2e-2)
    assert float(Cosine()(*(tree.map_tensors(torch.Tensor.float, t) for t in (one, two)))) == pytest.approx(
        float(exact), rel=2e-2
    )
    difference = tree.sub(tree.map_tensors(torch.Tensor.double, direction), gradient)
    assert tree.norm(difference) < 2e-2 * tree.norm(gradient)


@pytest.mark.parametrize("objective", [Cosine(), Euclidean(), L1()], ids=repr)
@pytest.mark.parametrize(("first", "stages", "until"), [(0.1, 8, 0.3), (0.5, 1, 1.0), (0.0, 4, 0.8)])
def test_stages_add_layers_in_equal_steps_until_all_count(objective, first, stages, until):
    stepwise = Stepwise(objective, first, stages, until)
    for stage in range(stages):
        for within in (0.0, 0.5, 0.99):
            now = stepwise.at((stage + within) / stages * until)
            assert type(now) is type(objective)
            assert now.weighting.share == pytest.approx(first + (1 - first) * stage / stages)
    for spent in (until, (1 + until) / 2, 1.0):
        assert stepwise.at(spent) == objective
    assert float(stepwise(update(0), update(1))) == float(objective(update(0), update(1)))


@settings(deadline=None, max_examples=30)
@given(share=st.floats(0, 1), count=st.integers(1, 40))
def test_the_latest_layers_are_the_last_ones_and_at_least_one(share, count):
    weights = Latest(share)(count)
    assert len(weights) == count
    assert list(weights) == sorted(weights)
    assert sum(weights) == max(1, round(share * count))


@pytest.mark.parametrize("wrong", [{"stages": 0}, {"until": 0.0}, {"until": 1.5}])
def test_stages_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InvalidCase, match=r"Stepwise needs stages >= 1 and 0 < until <= 1"):
        Stepwise(**wrong)


# Priors

PRIORS = [TotalVariation(0.3), AnisotropicTotalVariation(0.3), PixelNorm(0.3)]


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(2, 3, 3, 5, 4, generator=seeded(0), dtype=torch.float64)


def test_total_variation_is_the_mean_length_of_the_pixel_gradient(images):
    lengths = [
        math.sqrt(float(channel[i, j + 1] - channel[i, j]) ** 2 + float(channel[i + 1, j] - channel[i, j]) ** 2 + 1e-6)
        for channel in images[1].flatten(0, 1)
        for i in range(4)
        for j in range(3)
    ]
    assert float(TotalVariation(0.3)(images)[1]) == pytest.approx(0.3 * sum(lengths) / len(lengths), rel=1e-12)


def test_anisotropic_total_variation_is_the_mean_of_each_directions_steps(images):
    across = [float(abs(a - b)) for a, b in zip(images[0, ..., 1:].flatten(), images[0, ..., :-1].flatten())]
    down = [float(abs(a - b)) for a, b in zip(images[0, ..., 1:, :].flatten(), images[0, ..., :-1, :].flatten())]
    expected = 0.3 * (sum(across) / len(across) + sum(down) / len(down))
    assert float(AnisotropicTotalVariation(0.3)(images)[0]) == pytest.approx(expected, rel=1e-12)


def test_pixel_norm_is_the_mean_squared_distance_from_the_centre(images):
    assert float(PixelNorm(0.3, 0.1)(images)[0]) == pytest.approx(0.3 * float((images[0] - 0.1).square().mean()))


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_a_prior_gives_each_restart_its_own_penalty(prior, images):
    torch.testing.assert_close(prior(images), torch.cat([prior(row[None]) for row in images]))


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_a_flat_image_is_the_cheapest(prior, images):
    flat = torch.full_like(images, 0.5)
    assert bool((prior(flat) < prior(images)).all())
    assert float(prior(flat).max()) <= 0.3 * 1e-3 + 1e-12


@settings(deadline=None, max_examples=20)
@given(mean=st.floats(0, 1), spread=st.floats(0, 1), restarts=st.integers(1, 3), count=st.integers(1, 3))
def test_a_start_lies_in_the_box_and_is_a_function_of_its_generator(mean, spread, restarts, count):
    pixels = Pixels(mean, spread)
    start = pixels.start(restarts, count, (3, 4, 5), generator=seeded(0))
    assert start.shape == (restarts, count, 3, 4, 5)
    assert float(start.min()) >= 0
    assert float(start.max()) <= 1
    assert torch.equal(start, pixels.start(restarts, count, (3, 4, 5), generator=seeded(0)))
    assert pixels.decode(start) is start
