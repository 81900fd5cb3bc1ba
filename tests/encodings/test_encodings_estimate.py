"""The hardness estimate of Huang et al. [2020, section 4.2], and the theorems of their appendix B by Monte Carlo."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from leakgauge.encodings.estimate import Hardness
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded

TRIALS = 2000


# How far the inner products that betray a mixed image stand from those that do not, for Gaussian images.


class Products(NamedTuple):
    """Inner products of independent trials: where an image is shared, and where none is."""

    shared: Tensor
    unrelated: Tensor

    @property
    def separation(self) -> float:
        """The distance of the means in standard deviations of the wider of the two."""
        spread = max(float(self.shared.std()), float(self.unrelated.std()))
        return float(self.shared.mean() - self.unrelated.mean()) / spread


def between_mixtures(dimension: int, k: int, trials: int, *, generator: Generator) -> Products:
    """<x~, x~'> of sums of k images, with one of them in common or none [Huang et al., 2020, Theorem B.1, k = 2].

    For x ~ N(0, I/d): mean 1 and variance (k^2 + 1) / d if one is shared, else mean 0 and variance k^2 / d.
    """
    first, second = (_sums(trials, k, dimension, generator) for _ in range(2))
    common = _images(trials, dimension, generator=generator)
    fewer = [_sums(trials, k - 1, dimension, generator) for _ in range(2)]
    return Products(_inner(common + fewer[0], common + fewer[1]), _inner(first, second))


def with_public(dimension: int, k: int, trials: int, *, generator: Generator) -> Products:
    """<x~, x> of a sum of k images with one of the k, or with another public image [Huang et al., 2020, Theorem B.3].

    For x ~ N(0, I/d): mean 1 and variance (k + 1) / d if it is one of them, else mean 0 and variance k / d.
    """
    member, stranger = (_images(trials, dimension, generator=generator) for _ in range(2))
    mixture = member + _sums(trials, k - 1, dimension, generator)
    return Products(_inner(mixture, member), _inner(mixture, stranger))


def _images(*shape: int, generator: Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64) / shape[-1] ** 0.5


def _sums(trials: int, count: int, dimension: int, generator: Generator) -> Tensor:
    return _images(trials, count, dimension, generator=generator).sum(dim=1)


def _inner(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(dim=1)


@pytest.mark.parametrize(("k", "exponent"), [(3, 7), (4, 14), (6, 28)])
def test_the_naive_attack_costs_ten_to_the_seven_times_k_minus_two_against_imagenet(k, exponent):
    # "the computation cost of attack will be 10^{7(k-2)}"
    assert Hardness(1e7, k).naive.log10_work == pytest.approx(exponent)


@given(public=st.floats(1, 1e12), k=st.integers(2, 12), pixels=st.integers(1, 4000))
def test_the_naive_attack_is_the_cheaper_of_public_images_and_mask(public, k, pixels):
    hardness = Hardness(public, k, pixels=pixels)
    assert hardness.guess_public.log10_work == pytest.approx((k - 2) * math.log10(public))
    assert hardness.guess_mask.log10_work == pytest.approx(pixels * math.log10(2))
    assert hardness.naive.log10_work == min(hardness.guess_public.log10_work, hardness.guess_mask.log10_work)


def test_without_public_images_or_with_one_candidate_nothing_is_left_to_guess():
    assert Hardness(1e7, 2).naive.log10_work == 0
    assert Hardness(1, 6).naive.log10_work == 0


def test_a_search_is_linear_in_the_public_set_where_guessing_is_a_power():
    small, large = Hardness(1e6, 6), Hardness(1e7, 6)
    assert large.search.log10_work - small.search.log10_work == pytest.approx(1)
    assert large.guess_public.log10_work - small.guess_public.log10_work == pytest.approx(4)
    assert large.search.log10_work < large.naive.log10_work


def test_years_are_work_over_speed():
    (cost, *_) = Hardness(1e7, 4).costs
    assert 10 ** cost.log10_years(1e9) == pytest.approx(1e14 / 1e9 / (365.25 * 86400))


def test_what_cannot_be_estimated_is_refused():
    with pytest.raises(InvalidCase, match="public set of 0 images"):
        Hardness(0)
    with pytest.raises(InvalidCase, match="Of k = 3 images 4 cannot be private"):
        Hardness(10, 3, 4)
    with pytest.raises(InvalidCase, match="An image of 0 pixels"):
        Hardness(10, pixels=0)


# The theorems, for x ~ N(0, I/d).


def within(found: float, expected: float, deviation: float) -> bool:
    return abs(found - expected) < 5 * deviation


@pytest.mark.parametrize("dimension", [50, 200, 800])
@pytest.mark.parametrize("k", [2, 4])
def test_theorem_b1_mixtures_that_share_an_image_stand_one_apart_and_others_around_zero(dimension, k):
    found = between_mixtures(dimension, k, TRIALS, generator=seeded(dimension, k))
    unrelated, shared = k * dimension**-0.5, ((k * k + 1) / dimension) ** 0.5
    assert within(float(found.unrelated.mean()), 0, unrelated / TRIALS**0.5)
    assert within(float(found.shared.mean()), 1, shared / TRIALS**0.5)
    assert float(found.unrelated.std()) == pytest.approx(unrelated, rel=0.1)
    assert float(found.shared.std()) == pytest.approx(shared, rel=0.1)


@pytest.mark.parametrize("dimension", [50, 200, 800])
@pytest.mark.parametrize("k", [2, 4, 6])
def test_theorem_b3_a_mixed_public_image_stands_one_apart_and_others_within_the_root_of_k_over_d(dimension, k):
    found = with_public(dimension, k, TRIALS, generator=seeded(dimension, k))
    unrelated, shared = (k / dimension) ** 0.5, ((k + 1) / dimension) ** 0.5
    assert within(float(found.unrelated.mean()), 0, unrelated / TRIALS**0.5)
    assert within(float(found.shared.mean()), 1, shared / TRIALS**0.5)
    assert float(found.unrelated.std()) == pytest.approx(unrelated, rel=0.1)
    assert float(found.shared.std()) == pytest.approx(shared, rel=0.1)


def test_the_gap_grows_with_the_root_of_d_and_closes_with_k():
    by_dimension = [with_public(d, 4, TRIALS, generator=seeded(d)).separation for d in (50, 200, 800)]
    assert by_dimension[1] / by_dimension[0] == pytest.approx(2, rel=0.15)
    assert by_dimension[2] / by_dimension[1] == pytest.approx(2, rel=0.15)
    by_k = [with_public(200, k, TRIALS, generator=seeded(k)).separation for k in (1, 3, 7)]
    assert by_k[0] > by_k[1] > by_k[2]


def test_corollaries_b2_and_b4_hold_for_every_pair_once_d_is_large_enough():
    # With 3,072 pixels and k = 4, as for CIFAR, the smallest shared product is above the largest other one.
    found = with_public(3072, 4, 200, generator=seeded(0))
    assert float(found.shared.min()) > 2 * float(found.unrelated.abs().max())
    found = between_mixtures(3072, 2, 200, generator=seeded(0))
    assert float(found.shared.min()) > 2 * float(found.unrelated.abs().max())


def test_with_few_pixels_the_two_overlap():
    found = between_mixtures(8, 4, TRIALS, generator=seeded(0))
    assert float(found.shared.min()) < float(found.unrelated.max())
    assert found.separation < 1
