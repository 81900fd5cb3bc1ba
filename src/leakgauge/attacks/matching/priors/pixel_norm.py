"""Pixels stay near a middle value."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from leakgauge.attacks.matching.priors.base import Prior
from leakgauge.space import ImageSpace, InputSpace


@dataclass(frozen=True)
class PixelNorm(Prior):
    """Weight times the mean squared distance of the pixels from ``centre``."""

    weight: float = 1e-4
    centre: float = 0.5

    @property
    def serves(self) -> type[InputSpace]:
        return ImageSpace

    def __call__(self, images: Tensor) -> Tensor:
        return self.weight * (images - self.centre).square().flatten(1).mean(dim=1)
