"""What Flower's formula for local noise guarantees, recomputed."""

from __future__ import annotations

import math

import pytest

from leakgauge.bounds import bound_of
from leakgauge.defences import Clipping, GaussianNoise, adaptive_clipping, local_dp, recomputed_epsilon
from leakgauge.gaussian_mechanism import classical_deviation, gaussian_deviation, gaussian_epsilon
from leakgauge.protocol import FedSGD


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
def test_below_one_the_formula_guarantees_at_least_what_it_says(epsilon, delta):
    assert gaussian_epsilon(1 / classical_deviation(epsilon, delta), delta) <= epsilon
    assert gaussian_deviation(epsilon, delta) <= classical_deviation(epsilon, delta)


def test_far_above_one_it_guarantees_less_than_it_says_and_the_exact_noise_does_not():
    assert gaussian_epsilon(1 / classical_deviation(50.0, 1e-5), 1e-5) > 50
    exact = gaussian_deviation(50.0, 1e-5)
    assert gaussian_epsilon(1 / exact, 1e-5) == pytest.approx(50, rel=1e-6)
    assert exact > classical_deviation(50.0, 1e-5)


def test_the_defence_is_a_clip_and_the_noise_of_the_formula_and_its_bound_stands():
    defence = local_dp(clipping_norm=0.5, sensitivity=2.0, epsilon=4.0, delta=1e-6)
    deviation = 2 * math.sqrt(2 * math.log(1.25e6)) / 4
    assert defence.defences == (Clipping(0.5), GaussianNoise(deviation))
    assert bound_of(defence(FedSGD()), crowd=99).noise_multiplier == pytest.approx(deviation / 0.5)
    exact = local_dp(epsilon=4.0, exact=True).defences[1]
    assert isinstance(exact, GaussianNoise)
    assert exact.std == gaussian_deviation(4.0, 1e-5)


def test_a_sensitivity_that_is_stated_too_small_shows_in_the_epsilon_recomputed():
    honest = recomputed_epsilon(clipping_norm=1.0, sensitivity=2.0, epsilon=0.9)
    assert honest <= 0.9
    assert recomputed_epsilon(clipping_norm=1.0, sensitivity=1.0, epsilon=0.9) > 0.9
    assert recomputed_epsilon(sensitivity=0.0) == math.inf


def test_a_norm_that_adapts_falls_where_all_are_clipped_and_grows_where_none_is():
    assert adaptive_clipping(rounds=10).max_norm == pytest.approx(0.1 * math.exp(-1))
    assert adaptive_clipping(rounds=10, clipped=0.0).max_norm == pytest.approx(0.1 * math.exp(1))
    assert adaptive_clipping(rounds=10, clipped=0.5).max_norm == pytest.approx(0.1)
