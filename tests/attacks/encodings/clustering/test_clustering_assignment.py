"""Coefficients that agree with labels, and assignment as a flow."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encodings_support import fields
from leakgauge.attacks.encodings.clustering.assignment import LabelSimplices, fit_coefficients, flow
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded

CLASSES = torch.tensor([0, 0, 0, 1, 3, 3])


def cheapest(costs: torch.Tensor, demand: list[int], capacity: list[int]) -> float:
    columns = range(costs.shape[1])
    best = float("inf")
    for choice in itertools.product(*[itertools.combinations(columns, wanted) for wanted in demand]):
        uses = [sum(column in row for row in choice) for column in columns]
        if all(used <= most for used, most in zip(uses, capacity)):
            total = sum(float(costs[row, column]) for row, chosen in enumerate(choice) for column in chosen)
            best = min(best, total)
    return best


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(2, 4), st.integers(0, 1000), st.booleans())
def test_the_flow_is_the_cheapest_of_all_assignments(rows, columns, seed, single) -> None:
    generator = seeded(seed, "flow")
    costs = torch.randn(rows, columns, generator=generator)
    demand = torch.ones(rows, dtype=torch.long) if single else torch.randint(1, 3, (rows,), generator=generator)
    capacity = torch.randint(1, 3, (columns,), generator=generator)
    best = cheapest(costs, demand.tolist(), capacity.tolist())
    if best == float("inf"):
        with pytest.raises(InvalidCase, match="capacity"):
            flow(costs, demand, capacity)
        return
    chosen = flow(costs, demand, capacity)
    assert chosen.sum(dim=1).tolist() == demand.tolist()
    assert bool((chosen.sum(dim=0) <= capacity).all())
    assert float(costs[chosen].sum()) == pytest.approx(best, abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000))
def test_the_projection_agrees_with_labels_and_is_the_nearest_that_does(seed) -> None:
    generator = seeded(seed, "project")
    labels = torch.rand(4, 4, generator=generator, dtype=torch.float64)
    labels[:, 2] = 0
    simplices = LabelSimplices(CLASSES, labels)
    point = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    nearest = simplices.project(point)
    assert float(nearest.min()) >= 0
    for label in (0, 1, 3):
        torch.testing.assert_close(nearest[:, label == CLASSES].sum(dim=1), labels[:, label])
    # The variational inequality of a projection onto a convex set.
    other = simplices.project(torch.randn(4, 6, generator=generator, dtype=torch.float64))
    assert float(((point - nearest) * (other - nearest)).sum(dim=1).max()) <= 1e-9


def test_the_support_holds_every_class_of_the_label_first_and_k_images_at_most() -> None:
    labels = torch.tensor([[0.5, 0.2, 0.0, 0.3]])
    simplices = LabelSimplices(CLASSES, labels)
    coefficients = torch.tensor([[0.3, 0.2, 0.0, 0.2, 0.01, 0.29]])
    assert simplices.support(coefficients, 3).tolist() == [[True, False, False, True, False, True]]
    assert simplices.support(coefficients, 4).tolist() == [[True, True, False, True, False, True]]


def test_the_split_of_a_label_between_two_images_of_one_class_is_found() -> None:
    pictures = 2 * fields(6).flatten(1) - 1
    truth = torch.tensor([[0.35, 0.15, 0.0, 0.2, 0.3, 0.0], [0.0, 0.1, 0.5, 0.0, 0.15, 0.25]], dtype=torch.float64)
    labels = torch.stack([truth[:, label == CLASSES].sum(dim=1) for label in range(4)], dim=1)
    simplices = LabelSimplices(CLASSES, labels)
    halves = simplices.project(torch.where(truth > 0, 0.25, 0.0).double(), truth > 0)
    found = fit_coefficients(
        halves, pictures, (truth @ pictures).abs(), simplices, support=truth > 0, turns=20, steps=100
    )
    torch.testing.assert_close(found, truth, atol=1e-5, rtol=0)
    assert float((halves - truth).abs().max()) > 0.05
