from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from leakgauge.errors import InvalidCase
from leakgauge.metrics import LPIPS, PSNR, Identification, Metric, Summary, beyond_chance, summarise

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


def test_other_scores_have_students_interval() -> None:
    # 1..5: mean 3, deviation sqrt(2.5), 97.5 % quantile of t with 4 degrees 2.7764 (any printed table).
    summary = summarise(torch.arange(1.0, 6.0), CONTINUOUS)
    margin = 2.7764 * math.sqrt(2.5 / 5)
    assert (summary.low, summary.high) == pytest.approx((3 - margin, 3 + margin), abs=1e-4)


@given(st.lists(st.floats(-50, 200), min_size=2, max_size=20))
def test_the_interval_holds_the_mean_and_shrinks_to_it_without_spread(scores: list[float]) -> None:
    summary = summarise(torch.tensor(scores, dtype=torch.float64), CONTINUOUS)
    assert summary.low <= summary.mean <= summary.high
    flat = summarise(torch.full((4,), scores[0], dtype=torch.float64), CONTINUOUS)
    assert flat.low == flat.high == flat.mean == scores[0]


@pytest.mark.parametrize(("metric", "worst"), [(PSNR(), 30.0), (LPIPS("vgg", ""), 10.0)])
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
