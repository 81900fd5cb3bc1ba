"""The accountant against closed forms, the Monte Carlo of its own pair, and two accountants by others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from leakgauge.bounds.guarantees import ConcentratedGuarantee, GaussianGuarantee
from leakgauge.bounds.losses import sampled_gaussian_loss
from leakgauge.errors import InvalidCase
from leakgauge.gaussian_mechanism import gaussian_epsilon


@pytest.mark.parametrize(("noise", "rounds"), [(0.5, 1), (1.0, 1), (2.0, 1), (1.0, 10), (4.0, 100), (40.0, 1000)])
@pytest.mark.parametrize("chance", [0.001, 0.01, 0.1, 0.5])
def test_without_sampling_the_losses_give_the_closed_form(noise, rounds, chance):
    exact = norm.cdf(norm.ppf(chance) + math.sqrt(rounds) / noise)
    found = sampled_gaussian_loss(1 / noise, 1.0, rounds).success(chance)
    # From above, as a bound must be, and nearly.
    assert exact - 1e-9 <= found <= exact + 1e-4
    assert GaussianGuarantee(1 / noise).success(chance, rounds=rounds) == pytest.approx(exact, abs=1e-12)


def test_the_published_bounds_of_one_full_batch_step():
    found = [GaussianGuarantee(1 / noise).success(0.01) for noise in (0.5, 1.0, 2.0)]
    assert found == pytest.approx([0.372, 0.092, 0.034], abs=5e-4)


@pytest.mark.parametrize(
    ("noise", "sampling", "rounds", "epsilon"),
    [
        # By dp-accounting 0.6.0: from_gaussian_mechanism(noise, sampling_prob=sampling,
        # value_discretization_interval=1e-4).self_compose(rounds).get_epsilon_for_delta(1e-5).
        (0.6, 0.01, 1000, 7.433616),
        (1.0, 0.1, 100, 7.046603),
        (0.5, 0.01, 1, 3.025358),
        (0.5, 0.1, 1000, 126.166565),
        (1.0, 0.01, 10000, 6.187745),
    ],
)
def test_epsilon_is_that_of_dp_accounting(noise, sampling, rounds, epsilon):
    found = sampled_gaussian_loss(1 / noise, sampling, rounds).epsilon(1e-5)
    assert found == pytest.approx(epsilon, rel=2e-4)


def test_epsilon_is_below_that_of_the_renyi_accountant_and_near_it():
    from leakgauge.defences import epsilon

    ours = sampled_gaussian_loss(1.0, 0.02, 500).epsilon(1e-5)
    renyi = epsilon(1.0, 0.02, 500, 1e-5)
    assert ours < renyi < 1.5 * ours


@pytest.mark.parametrize(("noise", "sampling", "rounds"), [(1.0, 0.1, 20), (2.0, 0.5, 10), (0.6, 0.05, 30)])
def test_a_likelihood_ratio_test_succeeds_as_often_as_the_losses_say(noise, sampling, rounds):
    generator, tries, chance = np.random.default_rng(0), 200_000, 0.05

    def ratios(present):
        total = np.zeros(tries)
        for _ in range(rounds):
            seen = generator.standard_normal(tries)
            if present:
                seen += (generator.random(tries) < sampling) / noise
            total += np.log1p(sampling * np.expm1(seen / noise - 0.5 / noise**2))
        return total

    threshold = np.quantile(ratios(present=False), 1 - chance)
    measured = (ratios(present=True) > threshold).mean()
    bound = sampled_gaussian_loss(1 / noise, sampling, rounds).success(chance)
    assert measured == pytest.approx(bound, abs=0.006)  # four standard errors, of threshold and rate together


def test_the_bound_of_the_recipe_of_a_thousand_sampled_rounds():
    # riskcal gave .1243 and a Monte Carlo of the likelihood ratio .1253.
    assert sampled_gaussian_loss(1 / 0.6, 0.01, 1000).success(0.01) == pytest.approx(0.1243, abs=1.5e-3)


def test_a_bound_grows_with_rounds_sampling_and_chance_and_falls_with_noise():
    def success(noise=1.0, sampling=0.1, rounds=10, chance=0.01):
        return GaussianGuarantee(1 / noise).success(chance, rounds=rounds, sampling=sampling)

    least = success()
    assert 0.01 < least < min(success(rounds=20), success(sampling=0.2), success(chance=0.02), success(noise=0.9))


def test_the_epsilon_of_one_gaussian_mechanism_meets_its_delta_exactly():
    for shift in (0.25, 1.0, 3.0):
        epsilon = gaussian_epsilon(shift, 1e-5)
        delta = norm.cdf(shift / 2 - epsilon / shift) - math.exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift)
        assert delta == pytest.approx(1e-5, rel=1e-6)


def test_concentrated_privacy_is_no_tighter_than_the_gaussian_mechanism_it_describes():
    for shift, chance in ((0.3, 0.01), (1.0, 0.01), (1.0, 0.2), (2.0, 0.1)):
        exact = GaussianGuarantee(shift).success(chance)
        loose = ConcentratedGuarantee(shift**2 / 2).success(chance)
        assert exact <= loose <= 2 * exact + 0.05


def test_what_no_mechanism_has_is_refused_in_a_sentence():
    with pytest.raises(InvalidCase, match="correct them"):
        sampled_gaussian_loss(1.0, 0.0, 1)


@pytest.mark.parametrize(("sampling", "rounds"), [(1e-9, 10**6), (1e-6, 10**6), (1e-300, 1)])
def test_the_grid_of_rare_rounds_is_no_larger_than_their_loss(sampling, rounds):
    loss = sampled_gaussian_loss(1.0, sampling, rounds)
    assert len(loss.losses) < 2**18
    assert loss.present.sum() + loss.certain == pytest.approx(1.0, abs=1e-9)


def test_an_example_that_never_takes_part_is_found_by_chance_alone():
    held = GaussianGuarantee(1.0)
    assert held.success(0.01, rounds=10**6, sampling=1e-300) == 0.01
    assert held.epsilon(1e-5, rounds=10**6, sampling=1e-300) == 0.0
    # Nor is a bound ever below chance, whatever numbers are rounded.
    assert 0.01 <= held.success(0.01, rounds=10**6, sampling=1e-11) <= 0.01 + 1e-5


def test_rounds_without_end_hide_nothing_and_are_answered():
    held = GaussianGuarantee(1.0)
    assert held.success(0.01, rounds=10**9, sampling=0.1) == 1.0
    assert held.epsilon(1e-5, rounds=10**9, sampling=0.1) == gaussian_epsilon(math.sqrt(10**9), 1e-5)
