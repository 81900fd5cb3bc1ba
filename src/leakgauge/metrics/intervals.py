"""From scores per example to what may be claimed: mean, leakiest example, 95 % interval, test against chance."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.metrics.base import Metric

_CONFIDENCE = 0.95
_NAN = float("nan")


@dataclass(frozen=True)
class Summary:
    """Mean, leakiest score and 95 % interval of the mean over the ``count`` measured examples; NaN if there is none.

    ``deviation`` is the standard deviation of the scores, NaN for fewer than two.
    """

    mean: float
    worst: float
    low: float
    high: float
    count: int
    deviation: float = _NAN


def summarise(scores: Tensor, metric: Metric) -> Summary:
    """Summary of the scores that are not NaN.

    The interval never leaves the metric's range: Wilson's [1927] for a proportion; for other bounded scores the same
    construction with the spread that was seen, and for scores without a lower bound Student's, cut at the upper one.
    Both need two examples.

    >>> import torch
    >>> from leakgauge.metrics.psnr import PSNR
    >>> summarise(torch.tensor([20.0, torch.nan, 30.0]), PSNR()).worst
    30.0
    """
    measured = scores[~scores.isnan()].double()
    count = len(measured)
    if count == 0:
        return Summary(_NAN, _NAN, _NAN, _NAN, 0)
    if metric.binary:
        low, high = stats.binomtest(int(measured.sum()), count).proportion_ci(_CONFIDENCE, method="wilson")
    else:
        low, high = _interval(measured, metric)
    worst = measured.max() if metric.higher_is_leakier else measured.min()
    deviation = float(measured.std()) if count > 1 else _NAN
    return Summary(float(measured.mean()), float(worst), float(low), float(high), count, deviation)


def beyond_chance(hits: int, trials: int, chance: float) -> float:
    """One-sided exact binomial p-value: how often ``trials`` independent guesses hit ``hits`` times or more.

    >>> beyond_chance(hits=3, trials=3, chance=0.5)
    0.125
    """
    if not 0 <= hits <= trials:
        raise InvalidCase(f"{hits} hits in {trials} trials are impossible; pass 0 <= hits <= trials.")
    if trials == 0 or chance != chance:
        return _NAN
    return float(stats.binomtest(hits, trials, chance, alternative="greater").pvalue)


def _interval(scores: Tensor, metric: Metric) -> tuple[float, float]:
    low, high = student_interval(scores)
    if math.isnan(low):
        return low, high
    mean, squared_margin = float(scores.mean()), ((high - low) / 2) ** 2
    if math.isfinite(metric.low) and squared_margin > 0:
        low, high = _within(mean, squared_margin, metric)
    return min(max(low, metric.low), mean), max(min(high, metric.high), mean)


def _within(mean: float, squared_margin: float, metric: Metric) -> tuple[float, float]:
    """Every centre that the mean is no farther from than a margin that shrinks towards the bounds as it must.

    The variance at a centre c is taken to be in proportion to (c - low) (high - c), or to c - low where there is no
    upper bound, and to be the observed one at the mean. With a proportion's variance this is Wilson's interval for the
    effective number of trials [Kish, 1965].
    """
    above = mean - metric.low
    if above <= 0 or mean >= metric.high:
        return mean, mean
    if math.isinf(metric.high):
        factor = squared_margin / above
        centre, reach = above + factor / 2, math.sqrt(factor * above + factor**2 / 4)
    else:
        span = metric.high - metric.low
        factor = squared_margin / (above * (span - above))
        centre = (above + factor * span / 2) / (1 + factor)
        reach = math.sqrt(factor * above * (span - above) + (factor * span / 2) ** 2) / (1 + factor)
    return metric.low + centre - reach, metric.low + centre + reach


def student_interval(scores: Tensor) -> tuple[float, float]:
    """Student's 95 % interval of the mean of unbounded scores; NaN for fewer than two."""
    if len(scores) < 2:
        return _NAN, _NAN
    quantile = stats.t.ppf((1 + _CONFIDENCE) / 2, df=len(scores) - 1)
    mean, margin = float(scores.mean()), float(quantile * scores.std() / len(scores) ** 0.5)
    return mean - margin, mean + margin
