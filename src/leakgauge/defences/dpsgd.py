"""Differentially private SGD."""

from __future__ import annotations

import math
from dataclasses import dataclass

from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.wrappers import Private


@dataclass(frozen=True)
class DPSGD:
    """(sum_i g_i min(1, C / |g_i|) + N(0, (sigma C)^2)) / n in place of every gradient [Abadi et al., 2016].

    C is ``max_grad_norm``, sigma ``noise_multiplier``. The client's gradients themselves change, so the defence comes
    first wherever it stands in a chain. `accounting.epsilon` says what the noise guarantees.
    """

    max_grad_norm: float = 1.0
    noise_multiplier: float = 1.0

    def __post_init__(self) -> None:
        if not self.max_grad_norm > 0:
            raise InvalidCase(f"DPSGD(max_grad_norm=...) must be positive, got {self.max_grad_norm}; correct it.")
        if not 0 <= self.noise_multiplier < math.inf:
            raise InvalidCase(
                f"DPSGD(noise_multiplier=...) must be at least 0 and finite, got {self.noise_multiplier}; correct it."
            )
        if self.noise_multiplier and self.max_grad_norm == math.inf:
            raise InvalidCase("DPSGD(max_grad_norm=inf) would need infinite noise; bound the norm, or set no noise.")

    def __call__(self, local_update: LocalUpdate) -> LocalUpdate:
        if self.max_grad_norm == math.inf:
            return local_update  # neither clipped nor noisy
        return Private(local_update, self.max_grad_norm, self.noise_multiplier)
