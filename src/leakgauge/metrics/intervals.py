"""From scores per example to what may be claimed: mean, leakiest example, 95 % interval, test against chance."""

from __future__ import annotations

from dataclasses import dataclass

from scipy import stats
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.metrics.base import Metric

_CONFIDENCE = 0.95
_NAN = float("nan")


@dataclass(frozen=True)
class Summary:
    """Mean, leakiest score and 95 % interval of the mean over the ``count`` measured examples; NaN if there is none."""

    mean: float
    worst: float
    low: float
    high: float
    count: int


def summarise(scores: Tensor, metric: Metric) -> Summary:
    """Summary of the scores that are not NaN.

    The interval is Wilson's [1927] for a proportion, Student's t over examples otherwise (from two examples on).

    >>> import torch
    >>> from leakgauge.metrics.psnr import PSNR
    >>> summarise(torch.tensor([20.0, torch.nan, 30.0]), PSNR()).worst
    30.0
    """
    measured = scores[~scores.isnan()].double()
    count = len(measured)
    if count == 0:
        return Summary(_NAN, _NAN, _NAN, _NAN, 0)
    low, high = _wilson(int(measured.sum()), count) if metric.binary else _student(measured)
    worst = measured.max() if metric.higher_is_leakier else measured.min()
    return Summary(float(measured.mean()), float(worst), low, high, count)


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


def _wilson(hits: int, trials: int) -> tuple[float, float]:
    interval = stats.binomtest(hits, trials).proportion_ci(confidence_level=_CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def _student(scores: Tensor) -> tuple[float, float]:
    if len(scores) < 2:
        return _NAN, _NAN
    quantile = stats.t.ppf((1 + _CONFIDENCE) / 2, df=len(scores) - 1)
    mean, margin = float(scores.mean()), float(quantile * scores.std() / len(scores) ** 0.5)
    return mean - margin, mean + margin
