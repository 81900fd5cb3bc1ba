from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from leakgauge.catalogue import METRICS, describe_metric
from leakgauge.errors import InvalidCase
from leakgauge.metrics import LPIPSVGG, PSNR, SSIM, Identification, Metric, Summary, beyond_chance, summarise

BINARY, CONTINUOUS = Identification(), PSNR()


def proportion(hits: int, trials: int) -> Summary:
    return summarise(torch.tensor([1.0] * hits + [0.0] * (trials - hits), dtype=torch.float64), BINARY)


# By hand for 10/10: n / (n + z^2) = 10 / 13.8415; Newcombe 1998, Table I, method 3: 81/263, 15/148, 0/20, 1/29.
@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        (10, 10, 0.7225, 1.0),
        (0, 10, 0.0, 0.2775),
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_proportions_have_wilsons_interval(hits: int, trials: int, low: float, high: float) -> None:
    summary = proportion(hits, trials)
    assert (summary.low, summary.high) == pytest.approx((low, high), abs=5e-5)
    assert summary.mean == pytest.approx(hits / trials)


def test_decibels_have_students_interval() -> None:
    # 1..5: mean 3, deviation sqrt(2.5), 97.5 % quantile of t with 4 degrees 2.7764 (any printed table).
    summary = summarise(torch.arange(1.0, 6.0), CONTINUOUS)
    margin = 2.7764 * math.sqrt(2.5 / 5)
    assert (summary.low, summary.high) == pytest.approx((3 - margin, 3 + margin), abs=1e-4)


@st.composite
def scored(draw: st.DrawFn) -> tuple[Metric, Tensor]:
    """A metric of the catalogue, and two or more scores that it could give."""
    metric = describe_metric(draw(st.sampled_from(sorted(METRICS))))
    one = st.sampled_from([0.0, 1.0]) if metric.binary else st.floats(max(metric.low, -50.0), min(metric.high, 200.0))
    return metric, torch.tensor(draw(st.lists(one, min_size=2, max_size=20)), dtype=torch.float64)


@given(scored())
def test_an_interval_holds_the_mean_and_never_leaves_the_range(example: tuple[Metric, Tensor]) -> None:
    metric, scores = example
    summary = summarise(scores, metric)
    assert metric.low <= summary.low <= summary.mean + 1e-12
    assert summary.mean - 1e-12 <= summary.high <= metric.high


@given(scored(), st.integers(2, 5))
def test_an_interval_shrinks_as_the_same_scores_come_again(example: tuple[Metric, Tensor], times: int) -> None:
    metric, scores = example
    once, again = summarise(scores, metric), summarise(scores.repeat(times), metric)
    slack = 1e-9 * (1 + abs(once.mean))
    assert once.low <= again.low + slack
    assert again.high <= once.high + slack


@given(scored())
def test_without_spread_an_interval_of_graded_scores_is_the_mean(example: tuple[Metric, Tensor]) -> None:
    metric, scores = example
    flat = summarise(scores[:1].repeat(4), metric)
    if not metric.binary:
        assert flat.low == flat.high == flat.mean == float(scores[0])


def test_a_bounded_score_with_the_spread_of_a_proportion_has_wilsons_interval_but_for_the_quantile() -> None:
    """-1 and 1 are the bounds of SSIM; with many scores Student's quantile is the normal one."""
    hits = torch.tensor([1.0] * 1500 + [0.0] * 500, dtype=torch.float64)
    share, likeness = summarise(hits, BINARY), summarise(2 * hits - 1, SSIM())
    assert (likeness.low, likeness.high) == pytest.approx((2 * share.low - 1, 2 * share.high - 1), abs=1e-4)


def test_a_bounded_score_far_from_its_bounds_has_nearly_students_interval() -> None:
    scores = torch.linspace(-0.01, 0.01, 9, dtype=torch.float64)
    bounded, free = summarise(scores, SSIM()), summarise(scores, CONTINUOUS)
    assert (bounded.low, bounded.high) == pytest.approx((free.low, free.high), rel=1e-3)


@pytest.mark.parametrize(("metric", "worst"), [(PSNR(), 30.0), (LPIPSVGG(), 10.0)])
def test_the_worst_example_is_the_leakiest(metric: Metric, worst: float) -> None:
    assert summarise(torch.tensor([20.0, torch.nan, 30.0, 10.0]), metric).worst == worst


@pytest.mark.parametrize("metric", [BINARY, CONTINUOUS])
def test_missing_scores_change_nothing_but_the_count(metric: Metric) -> None:
    scores = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    gaps = torch.tensor([torch.nan, 1.0, 0.0, torch.nan, 1.0], dtype=torch.float64)
    assert summarise(gaps, metric) == summarise(scores, metric)
    assert summarise(gaps, metric).count == 3


@pytest.mark.parametrize("metric", [BINARY, CONTINUOUS])
@pytest.mark.parametrize("scores", [[], [math.nan, math.nan]])
def test_nothing_measured_is_nan_never_zero(metric: Metric, scores: list[float]) -> None:
    summary = summarise(torch.tensor(scores, dtype=torch.float64), metric)
    assert summary.count == 0
    assert all(math.isnan(value) for value in (summary.mean, summary.worst, summary.low, summary.high))


def test_one_example_has_a_mean_but_no_students_interval() -> None:
    summary = summarise(torch.tensor([25.0]), CONTINUOUS)
    assert (summary.mean, summary.worst, summary.count) == (25.0, 25.0, 1)
    assert math.isnan(summary.low)
    assert math.isnan(summary.high)


@given(trials=st.integers(1, 30), hits=st.integers(0, 30), chance=st.floats(0.01, 0.99))
def test_the_p_value_is_the_upper_binomial_tail(trials: int, hits: int, chance: float) -> None:
    hits = min(hits, trials)
    tail = sum(math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(hits, trials + 1))
    assert beyond_chance(hits, trials, chance) == pytest.approx(tail, rel=1e-9)


def test_no_hits_are_never_beyond_chance_and_no_trials_say_nothing() -> None:
    assert beyond_chance(0, 20, 0.01) == 1.0
    assert math.isnan(beyond_chance(0, 0, 0.01))
    assert math.isnan(beyond_chance(1, 2, math.nan))


@pytest.mark.parametrize(("hits", "trials"), [(3, 2), (-1, 2)])
def test_impossible_counts_are_refused(hits: int, trials: int) -> None:
    with pytest.raises(InvalidCase, match="impossible"):
        beyond_chance(hits, trials, 0.5)
