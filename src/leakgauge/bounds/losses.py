"""Privacy losses of the sampled Gaussian mechanism, composed over rounds: what dp-accounting computes, in numpy alone.

One round tells "the example is absent", Q = N(0, 1), from "it takes part with probability q", P = (1 - q) N(0, 1) +
q N(shift, 1). An example clipped to C under noise of standard deviation s is told apart no better than this pair with
shift = C / s [Mironov et al., 2019; Zhu et al., 2022]. The logarithm of P / Q, the privacy loss, adds up over rounds,
so its distribution is convolved [Koskela et al., 2020].

The loss is put on a grid by "connecting the dots" [Doroshenko et al., 2022]: what lies between two points goes to both
so that its mass under P and under Q stays what it is. The pair on the grid is then easier to tell apart than the true
one, so that everything read off it is an upper bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm

from leakgauge.errors import InvalidCase

Numbers = NDArray[np.float64]

_TAIL = 1e-12
"""The probability that is left out at each end and counted as if it gave everything away."""
_FINENESS = 60
"""Points of the grid to a standard deviation of one round's loss: the variance grows by 1 / (4 * 60^2) at most."""
_MOST_POINTS = 2**22
_MOST_OF_A_ROUND = 2**14
_COARSEST = 1.0
_LEAST_SAMPLING = 1e-10
"""Rarer rounds are taken for as rare as this, which hides less: P and Q would differ by less than numbers can tell."""
_LEAST_ORDER, _ORDERS_PER_DECADE = 1e-3, 10


class _Step(NamedTuple):
    """One round on the points ``width`` * (``first``, ``first`` + 1, ...); P has ``certain`` besides, and Q nothing.

    ``above`` and ``below`` are the logarithms of the moments of exp(loss) under P and of exp(-loss) under Q, at the
    ``orders``.
    """

    first: int
    width: float
    present: Numbers
    absent: Numbers
    certain: float
    orders: Numbers
    above: Numbers
    below: Numbers


@dataclass(frozen=True)
class PrivacyLoss:
    """The loss of all rounds, in increasing order, under P (``present``) and Q (``absent``).

    ``certain`` is the probability under P that is counted as giving everything away; what Q lacks to one lies below.
    """

    losses: Numbers
    present: Numbers
    absent: Numbers
    certain: float

    def success(self, chance: float) -> float:
        """The most probable a region can be under P that has the probability ``chance`` under Q: 1 - f(chance)."""
        absent, present = np.cumsum(self.absent[::-1]), np.cumsum(self.present[::-1])
        reached = np.interp(chance, np.append(0.0, absent), np.append(0.0, present))
        return float(min(1.0, reached + self.certain))

    def delta(self, epsilon: float) -> float:
        """The delta of (epsilon, delta)-differential privacy, of adding as of removing the example."""
        below = max(0.0, 1.0 - float(self.absent.sum()))
        removed = (self.present * -np.expm1(np.minimum(epsilon - self.losses, 0.0))).sum() + self.certain
        added = (self.absent * -np.expm1(np.minimum(epsilon + self.losses, 0.0))).sum() + below
        return float(min(1.0, max(removed, added)))

    def epsilon(self, delta: float) -> float:
        """The least epsilon at which ``delta`` is met; infinite where none is."""
        most = 1.0 + max(abs(self.losses[0]), abs(self.losses[-1]))
        if self.delta(most) > delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        return float(brentq(lambda epsilon: self.delta(epsilon) - delta, 0.0, most, xtol=1e-6))


def sampled_gaussian_loss(shift: float, sampling: float, rounds: int) -> PrivacyLoss | None:
    """The loss of ``rounds`` rounds, in each of which the example takes part with probability ``sampling``.

    None where it reaches so far that no grid holds it: then next to nothing is hidden.
    """
    if not (0 < shift < math.inf and 0 < sampling <= 1 and rounds >= 1):
        raise InvalidCase(
            f"A privacy loss needs a shift > 0, a sampling in (0, 1] and rounds >= 1, got {shift}, {sampling} and "
            f"{rounds}; correct them."
        )
    sampling = max(sampling, _LEAST_SAMPLING)
    width = _width(shift, sampling)
    step = _one_round(shift, sampling, width)
    low, high = _reach(step, rounds)
    while high - low > _MOST_POINTS:
        if width > _COARSEST:
            return None
        step = _one_round(shift, sampling, width := 2 * width)
        low, high = _reach(step, rounds)
    present, absent = (_convolved(mass, step.first, rounds, low, high) for mass in (step.present, step.absent))
    certain = 1.0 - (1.0 - step.certain) ** rounds + 2 * _TAIL
    return PrivacyLoss(width * np.arange(low, high + 1, dtype=np.float64), present, absent, certain)


def _loss(x: Numbers, shift: float, sampling: float) -> Numbers:
    """log P/Q at x."""
    shifted = math.log(sampling) + shift * x - shift**2 / 2
    return np.logaddexp(math.log1p(-sampling), shifted) if sampling < 1 else shifted


def _place(loss: Numbers, shift: float, sampling: float) -> Numbers:
    """Where the loss has this value; minus infinity below the least it can be."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = loss if sampling == 1 else np.log(np.maximum(np.expm1(loss) + sampling, 0.0)) - math.log(sampling)
    return rest / shift + shift / 2


def _ends(shift: float) -> tuple[float, float]:
    """Beyond these points lies nothing that counts, under either."""
    far = -float(norm.ppf(1e-20))
    return -far, shift + far


def _width(shift: float, sampling: float) -> float:
    """The width of the grid: a small part of the standard deviation of one round's loss."""
    x = np.linspace(*_ends(shift), 20_001)
    loss = _loss(x, shift, sampling)
    deviations = []
    for density in (norm.pdf(x), (1 - sampling) * norm.pdf(x) + sampling * norm.pdf(x - shift)):
        weight = density / density.sum()
        mean = (weight * loss).sum()
        deviations.append(math.sqrt((weight * (loss - mean) ** 2).sum()))
    return max(min(deviations) / _FINENESS, (loss[-1] - loss[0]) / _MOST_OF_A_ROUND)


@lru_cache(maxsize=16)
def _one_round(shift: float, sampling: float, width: float) -> _Step:
    start, end = _ends(shift)
    low, high = (float(_loss(np.array([x]), shift, sampling)[0]) for x in (start, end))
    first, last = math.floor(low / width), math.ceil(high / width)
    edges = _place(width * np.arange(first, last + 1, dtype=np.float64), shift, sampling)
    edges[0] = -math.inf
    absent = _masses(edges)
    present = (1 - sampling) * absent + sampling * _masses(edges - shift)
    points = width * np.arange(first, last)
    # To the upper end of each cell the share that keeps the mass under P and under Q.
    upper = np.clip((present - absent * np.exp(points)) / -math.expm1(-width), 0.0, present)
    on_grid = np.append(present - upper, 0.0) + np.append(0.0, upper)
    certain = sampling * float(norm.sf(edges[-1] - shift)) + (1 - sampling) * float(norm.sf(edges[-1]))
    losses = width * np.arange(first, last + 1)
    orders = _orders(width)
    exponents = orders[:, None] * losses[None, :]
    with np.errstate(divide="ignore"):
        masses = np.log(on_grid)
        above, below = (logsumexp(sign * exponents + one, axis=1) for sign, one in ((1, masses), (-1, masses - losses)))
    return _Step(first, width, on_grid, on_grid * np.exp(-losses), certain, orders, above, below)


def _orders(width: float) -> Numbers:
    """Where the moments are taken that say how far the loss of all rounds can reach: up to those that tell it to a few
    points of the grid, however small the losses are, or the grid would be millions of points with nothing on them."""
    most = max(1e4, 1 / width)
    return np.geomspace(_LEAST_ORDER, most, 1 + math.ceil(_ORDERS_PER_DECADE * math.log10(most / _LEAST_ORDER)))


def _masses(edges: Numbers) -> Numbers:
    """The standard normal's probability between neighbouring edges, from the side on which it is small."""
    below = np.diff(norm.cdf(edges))
    above = -np.diff(norm.sf(edges))
    return np.where(edges[1:] > 0, above, below)


def _reach(step: _Step, rounds: int) -> tuple[int, int]:
    """Between which points the loss of all rounds lies but for ``_TAIL``, by Chernoff's bound, under both."""
    room = -math.log(_TAIL)
    high = max(0.0, float(((rounds * step.above + room) / step.orders).min()))
    low = min(0.0, -float(((rounds * step.below + room) / step.orders).min()))
    reach = len(step.present) * rounds
    return (
        max(rounds * step.first, math.floor(low / step.width)),
        min(rounds * step.first + reach, math.ceil(high / step.width)),
    )


def _convolved(mass: Numbers, first: int, rounds: int, low: int, high: int) -> Numbers:
    """The ``rounds``-fold convolution on the points low ... high; what reaches beyond is below ``_TAIL``."""
    size = 2 ** math.ceil(math.log2(max(high - low + 1, len(mass), 2)))
    spectrum = np.fft.rfft(mass, size) ** rounds
    circle = np.maximum(np.fft.irfft(spectrum, size), 0.0)
    return circle[(np.arange(low, high + 1) - rounds * first) % size]
