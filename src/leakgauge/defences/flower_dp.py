"""Flower's differential privacy on the client: clipping of the update, fixed or adaptive, and local noise."""

from __future__ import annotations

import math

from leakgauge.defences.base import Chain
from leakgauge.defences.clipping import Clipping
from leakgauge.defences.noise import GaussianNoise
from leakgauge.errors import InvalidCase
from leakgauge.gaussian_mechanism import classical_deviation, gaussian_deviation, gaussian_epsilon


def fixed_clipping(clipping_norm: float = 10.0) -> Clipping:
    """Flower's ``fixedclipping_mod``: the update of weights, scaled down to at most ``clipping_norm``.

    The server adds its noise to the mean of all clients, after having seen each: against the server nothing but the
    clip stands. 10 is the norm of Flower's guide.

    >>> fixed_clipping(0.5)
    Clipping(max_norm=0.5)
    """
    _require_positive("fixed_clipping", "clipping_norm", clipping_norm)
    return Clipping(clipping_norm)


def adaptive_clipping(
    initial_clipping_norm: float = 0.1,
    target_clipped_quantile: float = 0.5,
    clip_norm_lr: float = 0.2,
    rounds: int = 0,
    clipped: float = 1.0,
) -> Clipping:
    """Flower's ``adaptiveclipping_mod`` after ``rounds`` rounds in each of which the share ``clipped`` was clipped.

    The norm is multiplied by exp(-clip_norm_lr (clipped - target_clipped_quantile)) after every round, as Flower 1.41
    does, with its defaults. [Andrew et al., 2021] count there those that were *not* clipped, so that the norm grows
    where too many are; as it is run, it then falls.

    >>> adaptive_clipping(1.0, rounds=10).max_norm < adaptive_clipping(1.0).max_norm
    True
    """
    _require_positive("adaptive_clipping", "initial_clipping_norm", initial_clipping_norm)
    for name, value in {"target_clipped_quantile": target_clipped_quantile, "clipped": clipped}.items():
        if not 0 <= value <= 1:
            raise InvalidCase(f"adaptive_clipping({name}=...) must lie in [0, 1], got {value}; it is a share.")
    if not 0 <= clip_norm_lr < math.inf or rounds < 0:
        raise InvalidCase(
            f"adaptive_clipping needs 0 <= clip_norm_lr < inf and rounds >= 0, got {clip_norm_lr} and {rounds}."
        )
    return Clipping(initial_clipping_norm * math.exp(-clip_norm_lr * (clipped - target_clipped_quantile) * rounds))


def local_dp(
    clipping_norm: float = 1.0,
    sensitivity: float = 1.0,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    exact: bool = False,
) -> Chain:
    """Flower's ``LocalDpMod``: clip the update to ``clipping_norm``, then add Gaussian noise calibrated to epsilon.

    Its standard deviation is ``sensitivity`` sqrt(2 ln(1.25 / delta)) / epsilon, which is proven for epsilon < 1 alone;
    with ``exact`` it is the least that guarantees epsilon [Balle and Wang, 2018]. Whether the sensitivity stated is the
    one there is, nobody checks: two updates of length C may be 2 C apart. See `recomputed_epsilon`.
    """
    _require_positive("local_dp", "clipping_norm", clipping_norm)
    _require_positive("local_dp", "epsilon", epsilon)
    if not 0 <= sensitivity < math.inf:
        raise InvalidCase(f"local_dp(sensitivity=...) must be at least 0 and finite, got {sensitivity}; correct it.")
    if not 0 < delta < 1:
        raise InvalidCase(f"local_dp(delta=...) must lie in (0, 1), got {delta}; correct it.")
    unit = gaussian_deviation(epsilon, delta) if exact else classical_deviation(epsilon, delta)
    return Chain((Clipping(clipping_norm), GaussianNoise(sensitivity * unit)))


def recomputed_epsilon(
    clipping_norm: float = 1.0, sensitivity: float = 1.0, epsilon: float = 1.0, delta: float = 1e-5
) -> float:
    """What ``LocalDpMod`` guarantees against exchanging a client's data: any update of its clip for any other.

    >>> round(recomputed_epsilon(epsilon=1.0), 2)  # two updates of length 1 may be 2 apart
    1.61
    """
    deviation = sensitivity * classical_deviation(epsilon, delta)
    return gaussian_epsilon(2 * clipping_norm / deviation, delta) if deviation else math.inf


def _require_positive(owner: str, option: str, value: float) -> None:
    if not value > 0:
        raise InvalidCase(f"{owner}({option}=...) must be positive, got {value}; correct it.")
