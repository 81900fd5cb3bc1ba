"""The error that no attacker falls below, where the best attacker is known exactly."""

from __future__ import annotations

import math

import pytest
import torch
from bounds_support import given, linear_learner

from leakgauge.bounds.fisher import (
    error_bound,
    leading_singular_values,
    least_error,
    prior_spectrum,
    squared_jacobian,
    under_noise,
    update_function,
)
from leakgauge.config import build_defence
from leakgauge.models import MLP
from leakgauge.models.base import build
from leakgauge.protocol import FedAvg, FedSGD, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch


def test_a_linear_update_is_estimated_as_well_as_the_bound_says():
    """u = x: the noisy update itself is the best unbiased guess, and shrinking it the best of all for a white prior."""
    entries, deviation, spread = 30, 0.5, 0.8
    learner, state = linear_learner(entries)
    generator = seeded(0, "rows")
    truth = spread * torch.randn(400, entries, generator=generator)
    client = build_defence(f"gaussian_noise:std={deviation}")(FedSGD())
    bound = error_bound(client, learner, state, given(truth[:1]), truth, generator=generator)
    assert bound.information == pytest.approx(entries / deviation**2)
    assert bound.unbiased == pytest.approx(deviation**2)
    shrunk = 1 / (1 / deviation**2 + 1 / spread**2)
    # The prior's spectrum is that of 400 rows, so not quite white.
    assert bound.informed == pytest.approx(shrunk, rel=0.03)
    noisy = truth + deviation * torch.randn(truth.shape, generator=generator)
    best = noisy * shrunk / deviation**2
    assert float((noisy - truth).square().mean()) == pytest.approx(bound.unbiased, rel=0.03)
    assert float((best - truth).square().mean()) == pytest.approx(bound.informed, rel=0.04)


@pytest.mark.parametrize("strength", [0.1, 1.0, 30.0])
def test_of_all_linear_updates_of_one_strength_none_allows_less_error_and_one_as_little(strength):
    generator = seeded(0, "linear")
    values = torch.rand(12, generator=generator, dtype=torch.float64).square() + 1e-3
    prior = torch.diag(1 / values)

    def error(information):
        return float(torch.linalg.inv(information + prior).trace())

    bound = least_error(values, strength)
    for _ in range(20):
        mixing = torch.randn(20, 12, generator=generator, dtype=torch.float64)
        information = mixing.T @ mixing
        assert error(information * strength / information.trace()) >= bound
    level = _level(values, strength)
    poured = torch.diag((1 / level - 1 / values).clamp_min(0))
    assert float(poured.trace()) == pytest.approx(strength, rel=1e-6)
    assert error(poured) == pytest.approx(bound, rel=1e-6)


def _level(values, strength):
    """The level at which what is above it needs all of the strength, by trying every number of directions."""
    ordered = values.sort(descending=True).values
    for count in range(1, len(ordered) + 1):
        level = count / (strength + float((1 / ordered[:count]).sum()))
        if count == len(ordered) or level >= ordered[count]:
            return level
    raise AssertionError


def test_without_information_the_error_is_the_priors_own():
    values = torch.tensor([3.0, 1.0, 0.0])
    assert least_error(values, 0.0) == 4.0
    assert least_error(values, 1e12) == pytest.approx(2 * 2 / 1e12, rel=1e-3)


def test_the_spectrum_of_images_holds_all_of_their_variance_and_that_of_noise_is_flat():
    images = torch.rand(300, 3, 6, 6, generator=seeded(0, "images"))
    spectrum = prior_spectrum(images)
    assert len(spectrum) == 108
    assert float(spectrum.sum()) == pytest.approx(float(images.double().var(dim=0, unbiased=False).sum()))
    assert float(spectrum.max() / spectrum.min()) < 3
    smooth = torch.nn.functional.avg_pool2d(images, 3, stride=1)
    assert float(prior_spectrum(smooth).max() / prior_spectrum(smooth).min()) > 30


@pytest.fixture(scope="module")
def network():
    module = build(MLP(hidden=(6,)), (7,), 3, seed=0).double()
    learner, state = learner_and_state(module)
    inputs = torch.randn(2, 7, generator=seeded(0, "inputs"), dtype=torch.float64)
    return learner, state, Batch(inputs, torch.tensor([0, 2]))


@pytest.mark.parametrize("client", [FedSGD(), FedAvg(epochs=1, batch_size=1, learning_rate=0.1)], ids=["one", "many"])
def test_the_jacobian_of_a_network_by_probes_is_that_of_autograd(network, client):
    learner, state, batch = network
    update = update_function(client, learner, state, batch)
    exact = torch.autograd.functional.jacobian(update, batch.inputs).flatten(1)
    found = squared_jacobian(update, batch.inputs, 30, seeded(0, "probes"))
    assert found == pytest.approx(float(exact.square().sum()), rel=0.4)
    values = leading_singular_values(update, batch.inputs, 3, seeded(0, "basis"), sweeps=6)
    assert torch.allclose(values, torch.linalg.svdvals(exact)[:3], rtol=0.02)


def test_noise_is_found_under_what_follows_it_and_not_under_what_looks_at_the_data_again():
    inner, deviation = under_noise(
        build_defence("pruning+gaussian_noise:std=0.5+clipping+secure_aggregation")(FedSGD())
    )
    assert deviation == 0.5
    assert type(inner).__name__ == "Transformed"
    for defence in ("none", "pruning", "gaussian_noise:std=0", "gaussian_noise:std=1+soteria", "laplace_noise"):
        assert under_noise(build_defence(defence)(FedSGD())) is None


def test_more_rounds_and_less_noise_leave_less_error(network):
    learner, state, batch = network

    def informed(std, rounds=1):
        client = build_defence(f"gaussian_noise:std={std}")(FedSGD())
        references = torch.randn(50, 7, generator=seeded(0, "references"), dtype=torch.float64)
        return error_bound(client, learner, state, batch, references, rounds=rounds, generator=seeded(0)).informed

    assert informed(0.1, rounds=4) == pytest.approx(informed(0.05), rel=1e-9)
    assert informed(0.05) < informed(0.1) < informed(10.0) <= 1.1
    assert math.isfinite(informed(1e-6))
