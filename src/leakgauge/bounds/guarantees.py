"""What noise guarantees whatever the attack: the most probable a right guess can be, given how probable a blind one is.

With z one of m + 1 equally likely candidates and everything else known, an attacker's regions A_z ("I say z") are
disjoint, so that under any law Q that does not depend on z they have 1 / (m + 1) on average. If a mechanism keeps every
P_z so close to Q that P_z(A) <= g(Q(A)) for all A, with g concave, then by Jensen the mean of P_z(A_z) is at most
g(1 / (m + 1)). Q is the law with the contribution of z left out; g = 1 - f, f the trade-off function of Q against P_z
[Dong et al., 2022; Hayes et al., 2023; Kaissis et al., 2023]. Nothing but the distance of each candidate to that centre
enters, so that a clip to C counts once and not twice.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from leakgauge.bounds.losses import PrivacyLoss, sampled_gaussian_loss
from leakgauge.gaussian_mechanism import gaussian_epsilon

Level = Literal["example", "client"]
"""Whose contribution the noise hides: one example's, or that of the client's whole batch and so of each example."""


_PLAIN = 10.0
"""A contribution so many times longer than the noise is seen whenever it is there; sampling alone then hides it."""

_NEVER = 1e-12
"""An example that takes part in any round with less than this probability is hidden by that, to all digits."""


class Guarantee(ABC):
    """What one round guarantees."""

    level: Level

    @abstractmethod
    def success(self, chance: float, *, rounds: int = 1, sampling: float = 1.0) -> float:
        """The most probable that a guess can be right which blindly is right with probability ``chance``.

        In each of ``rounds`` rounds the example takes part with probability ``sampling``, and nobody knows in which.
        """

    @abstractmethod
    def epsilon(self, delta: float, *, rounds: int = 1, sampling: float = 1.0) -> float:
        """The epsilon of (epsilon, delta)-differential privacy under adding or removing what is hidden."""

    def averaged(self, clients: int) -> Guarantee:
        """The same after the mean of so many clients is taken, each with noise of its own."""
        del clients
        return self


@dataclass(frozen=True)
class GaussianGuarantee(Guarantee):
    """A contribution of length C under Gaussian noise of standard deviation s on every entry: ``shift`` = C / s."""

    shift: float
    level: Level = "example"

    @property
    def noise_multiplier(self) -> float:
        return 1 / self.shift if self.shift else math.inf

    def success(self, chance: float, *, rounds: int = 1, sampling: float = 1.0) -> float:
        if chance >= 1 or self.shift == 0:
            return min(chance, 1.0)
        if sampling == 1:
            # One round of noise that is sqrt(rounds) times smaller.
            return float(ndtr(ndtri(chance) + math.sqrt(rounds) * self.shift))
        # Without the example in any round nothing is left but chance, whatever the noise.
        ever = _takes_part(sampling, rounds)
        at_worst = chance + ever * (1 - chance)
        composed = None if ever <= _NEVER else self._composed(sampling, rounds)
        return at_worst if composed is None else max(chance, min(at_worst, composed.success(chance)))

    def epsilon(self, delta: float, *, rounds: int = 1, sampling: float = 1.0) -> float:
        if self.shift == 0 or _takes_part(sampling, rounds) <= delta:
            return 0.0
        composed = self._composed(sampling, rounds)
        return gaussian_epsilon(math.sqrt(rounds) * self.shift, delta) if composed is None else composed.epsilon(delta)

    def _composed(self, sampling: float, rounds: int) -> PrivacyLoss | None:
        """What is known of sampled rounds beyond that they are sampled; None where that is nothing."""
        return None if sampling == 1 or self.shift > _PLAIN else _composed(self.shift, sampling, rounds)

    def averaged(self, clients: int) -> Guarantee:
        # The contribution shrinks by the number of clients, the noise by its root.
        return replace(self, shift=self.shift / math.sqrt(clients))


@dataclass(frozen=True)
class ConcentratedGuarantee(Guarantee):
    """Renyi divergences of order a at most a * ``rho`` [Bun and Steinke, 2016].

    Laplace noise of scale b is (d / b)-differentially private for a shift d of one entry and so has rho = (d / b)^2
    / 2; over all entries of a contribution of length C these add up to (C / b)^2 / 2, whatever their number. Sampling
    is not credited.
    """

    rho: float
    level: Level = "client"

    def success(self, chance: float, *, rounds: int = 1, sampling: float = 1.0) -> float:
        del sampling
        rho = self.rho * rounds
        if chance >= 1 or rho == 0:
            return min(chance, 1.0)
        if _least_rho(1 - 1e-12, chance) <= rho:
            return 1.0
        return float(brentq(lambda success: _least_rho(success, chance) - rho, chance, 1 - 1e-12, xtol=1e-10))

    def epsilon(self, delta: float, *, rounds: int = 1, sampling: float = 1.0) -> float:
        del sampling
        rho = self.rho * rounds
        orders = 1 + np.geomspace(1e-3, 1e4, 2000)
        # Canonne, Kamath and Steinke, 2020, Proposition 12.
        found = orders * rho + np.log(1 / (orders * delta)) / (orders - 1) + np.log1p(-1 / orders)
        return max(0.0, float(found.min()))


def _takes_part(sampling: float, rounds: int) -> float:
    """How probable it is that an example is in any of the rounds.

    >>> _takes_part(1e-300, 10**6), _takes_part(0.5, 2), _takes_part(1.0, 1)
    (1e-294, 0.75, 1.0)
    """
    return 1.0 if sampling == 1 else -math.expm1(rounds * math.log1p(-sampling))


@lru_cache(maxsize=64)
def _composed(shift: float, sampling: float, rounds: int) -> PrivacyLoss | None:
    return sampled_gaussian_loss(shift, sampling, rounds)


def _least_rho(success: float, chance: float) -> float:
    """The least rho that allows a success: the largest of D_a(success | chance) / a over the orders a."""
    orders = 1 + np.geomspace(1e-4, 1e3, 400)
    both = np.logaddexp(
        orders * math.log(success) + (1 - orders) * math.log(chance),
        orders * math.log1p(-success) + (1 - orders) * math.log1p(-chance),
    )
    return float((both / ((orders - 1) * orders)).max())
