"""Differentially private SGD, and what its noise guarantees by Opacus' own accountant (`pip install leakgauge[dp]`)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal, get_args

from leakgauge.defences.base import Defence, parts
from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.wrappers import Private


@dataclass(frozen=True)
class DPSGD:
    """(sum_i g_i min(1, C / |g_i|) + N(0, (sigma C)^2)) / n in place of every gradient [Abadi et al., 2016].

    C is ``max_grad_norm``, sigma ``noise_multiplier``; n is the ``expected_batch_size`` where batches are drawn example
    by example (Poisson sampling), or else the size that the batch has. The client's gradients themselves change, so the
    defence comes first wherever it stands in a chain. `epsilon` says what the noise guarantees.
    """

    max_grad_norm: float = 1.0
    noise_multiplier: float = 1.0
    expected_batch_size: int | None = None

    def __post_init__(self) -> None:
        if not self.max_grad_norm > 0:
            raise InvalidCase(f"DPSGD(max_grad_norm=...) must be positive, got {self.max_grad_norm}; correct it.")
        if not 0 <= self.noise_multiplier < math.inf:
            raise InvalidCase(
                f"DPSGD(noise_multiplier=...) must be at least 0 and finite, got {self.noise_multiplier}; correct it."
            )
        if self.noise_multiplier and self.max_grad_norm == math.inf:
            raise InvalidCase("DPSGD(max_grad_norm=inf) would need infinite noise; bound the norm, or set no noise.")

        if self.expected_batch_size is not None and self.expected_batch_size < 1:
            raise InvalidCase(
                f"DPSGD(expected_batch_size=...) must be at least 1, got {self.expected_batch_size}; correct it."
            )

    def __call__(self, local_update: LocalUpdate) -> LocalUpdate:
        if self.max_grad_norm == math.inf:
            return local_update  # neither clipped nor noisy
        return Private(local_update, self.max_grad_norm, self.noise_multiplier, self.expected_batch_size)


DELTA = 1e-5
"""The delta at which guarantees are stated."""


def guaranteed_epsilon(defence: Defence, sample_rate: float, steps: int) -> float | None:
    """What so many rounds of a client guarantee each of its examples at ``DELTA``.

    None without DP-SGD; NaN where no accountant is at hand.
    """
    private = [part for part in parts(defence) if isinstance(part, DPSGD)]
    if not private:
        return None
    try:
        return min(epsilon(part.noise_multiplier, sample_rate, steps, DELTA) for part in private)
    except InvalidCase:  # the accountant is an optional dependency
        return math.nan


Accountant = Literal["rdp", "prv", "gdp"]


def epsilon(
    noise_multiplier: float, sample_rate: float, steps: int, delta: float, accountant: Accountant = "rdp"
) -> float:
    """The epsilon of (epsilon, delta)-differential privacy after ``steps`` steps of DP-SGD, by Opacus' accountants.

    The sampled Gaussian mechanism: every example takes part in a step with probability ``sample_rate``, on its own.
    ``rdp`` is Renyi accounting [Mironov et al., 2019], an upper bound; ``prv`` convolves privacy losses [Gopi et al.,
    2021], the tightest; ``gdp`` is the central limit of many steps [Bu et al., 2020], which may be too low. Infinite
    without noise, 0 without steps.
    """
    if accountant not in get_args(Accountant):
        raise InvalidCase(f"There is no accountant {accountant!r}; choose from {', '.join(get_args(Accountant))}.")
    if noise_multiplier < 0 or not 0 < sample_rate <= 1 or steps < 0 or not 0 < delta < 1:
        raise InvalidCase(
            "epsilon needs noise_multiplier >= 0, sample_rate in (0, 1], steps >= 0 and delta in (0, 1), got "
            f"{noise_multiplier}, {sample_rate}, {steps} and {delta}; correct them."
        )
    if steps == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    with warnings.catch_warnings():
        # Among others, that the best order is at the end of its list: the bound holds all the same.
        warnings.simplefilter("ignore")
        try:
            from opacus.accountants import create_accountant
        except ImportError as error:
            raise InvalidCase(
                "The privacy accountant is Opacus'; install it with `pip install leakgauge[dp]`."
            ) from error
        chosen = create_accountant(accountant)
        chosen.history.append((noise_multiplier, sample_rate, steps))
        return float(chosen.get_epsilon(delta))
