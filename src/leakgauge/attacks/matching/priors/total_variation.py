"""Neighbouring pixels are alike."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from leakgauge.attacks.matching.priors.base import Prior
from leakgauge.protocol.encoding import CENTRE
from leakgauge.space import ImageSpace, InputSpace


@dataclass(frozen=True)
class TotalVariation(Prior):
    """Weight times the mean length of the pixel gradient, sqrt(dx^2 + dy^2 + smoothing) [Rudin et al., 1992].

    The smoothing keeps the penalty differentiable where the image is flat, which quasi-Newton steps need.
    """

    weight: float = 1e-3
    smoothing: float = 1e-6

    @property
    def serves(self) -> type[InputSpace]:
        return ImageSpace

    def __call__(self, images: Tensor) -> Tensor:
        across = images[..., :-1, 1:] - images[..., :-1, :-1]
        down = images[..., 1:, :-1] - images[..., :-1, :-1]
        lengths = (across.square() + down.square() + self.smoothing).sqrt()
        return self.weight * _means(lengths)


@dataclass(frozen=True)
class AnisotropicTotalVariation(Prior):
    """Weight times (mean |dx| + mean |dy|), the form of Geiping et al. 2020."""

    weight: float = 1e-2

    @property
    def serves(self) -> type[InputSpace]:
        return ImageSpace

    def __call__(self, images: Tensor) -> Tensor:
        across = (images[..., 1:] - images[..., :-1]).abs()
        down = (images[..., 1:, :] - images[..., :-1, :]).abs()
        return self.weight * (_means(across) + _means(down))


@dataclass(frozen=True)
class SignedTotalVariation(Prior):
    """Total variation of |x - 1/2|: what a mask of random signs leaves smooth [Huang et al., 2021, InstaHide]."""

    weight: float = 1e-3
    smoothing: float = 1e-6

    @property
    def serves(self) -> type[InputSpace]:
        return ImageSpace

    def __call__(self, images: Tensor) -> Tensor:
        return TotalVariation(self.weight, self.smoothing)((images - CENTRE).abs())


def _means(differences: Tensor) -> Tensor:
    """For each restart; 0 where an image is one pixel wide or high and has no neighbours to differ from."""
    return differences.flatten(1).sum(dim=1) / max(1, differences[0].numel())
