"""The Gaussian mechanism, exactly: epsilon from noise, and noise from epsilon [Balle and Wang, 2018]."""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

_LOUDEST = 1e150
"""Shifts beyond it have squares that no float holds, and no noise to speak of."""


def gaussian_epsilon(shift: float, delta: float) -> float:
    """The epsilon of one Gaussian mechanism whose sensitivity is ``shift`` standard deviations.

    >>> round(gaussian_epsilon(1.0, 1e-5), 3)
    4.377
    """
    if shift == 0:
        return 0.0

    def excess(epsilon: float) -> float:
        below = math.exp(min(epsilon + log_ndtr(-shift / 2 - epsilon / shift), 0.0))
        return float(ndtr(shift / 2 - epsilon / shift)) - below - delta

    if shift > _LOUDEST:
        return math.inf
    most = shift**2 / 2 + shift * -float(ndtri(delta)) + 1
    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, most, xtol=1e-9))


def gaussian_deviation(epsilon: float, delta: float) -> float:
    """The least noise, in units of the sensitivity, that guarantees epsilon.

    >>> round(gaussian_epsilon(1 / gaussian_deviation(3.0, 1e-5), 1e-5), 6)
    3.0
    """
    if math.isinf(epsilon):
        return 0.0
    low, high = 1e-6, 1.0
    while gaussian_epsilon(1 / high, delta) > epsilon:
        high *= 2
    return float(brentq(lambda size: gaussian_epsilon(1 / size, delta) - epsilon, low, high, xtol=1e-12, rtol=1e-10))


def classical_deviation(epsilon: float, delta: float) -> float:
    """sqrt(2 ln(1.25 / delta)) / epsilon, which is proven for epsilon < 1 alone [Dwork and Roth, 2014, theorem A.1].

    From some epsilon on it is too small: the mechanism then guarantees less than it says.
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon
