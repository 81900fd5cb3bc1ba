"""What images are like: neighbours agree, values are moderate, restarts find the same."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.linalg import vector_norm

from leakgauge.attacks.matching.priors.base import Prior
from leakgauge.protocol.encoding import CENTRE
from leakgauge.space import ImageSpace, InputSpace


class ImagePrior(Prior, ABC):
    """One that looks at pixels."""

    @property
    def serves(self) -> type[InputSpace]:
        return ImageSpace


@dataclass(frozen=True)
class TotalVariation(ImagePrior):
    """Weight times the mean length of the pixel gradient, sqrt(dx^2 + dy^2 + smoothing) [Rudin et al., 1992].

    The smoothing keeps the penalty differentiable where the image is flat, which quasi-Newton steps need.
    """

    weight: float = 1e-3
    smoothing: float = 1e-6

    def __call__(self, images: Tensor) -> Tensor:
        across = images[..., :-1, 1:] - images[..., :-1, :-1]
        down = images[..., 1:, :-1] - images[..., :-1, :-1]
        lengths = (across.square() + down.square() + self.smoothing).sqrt()
        return self.weight * _means(lengths)


@dataclass(frozen=True)
class AnisotropicTotalVariation(ImagePrior):
    """Weight times (mean |dx| + mean |dy|), the form of Geiping et al. 2020."""

    weight: float = 1e-2

    def __call__(self, images: Tensor) -> Tensor:
        across = (images[..., 1:] - images[..., :-1]).abs()
        down = (images[..., 1:, :] - images[..., :-1, :]).abs()
        return self.weight * (_means(across) + _means(down))


@dataclass(frozen=True)
class SignedTotalVariation(ImagePrior):
    """Total variation of |x - 1/2|: what a mask of random signs leaves smooth [Huang et al., 2021, InstaHide]."""

    weight: float = 1e-3
    smoothing: float = 1e-6

    def __call__(self, images: Tensor) -> Tensor:
        return TotalVariation(self.weight, self.smoothing)((images - CENTRE).abs())


def _means(differences: Tensor) -> Tensor:
    """For each restart; 0 where an image is one pixel wide or high and has no neighbours to differ from."""
    return differences.flatten(1).sum(dim=1) / max(1, differences[0].numel())


@dataclass(frozen=True)
class PixelNorm(ImagePrior):
    """Weight times the mean squared distance of the pixels from ``centre``."""

    weight: float = 1e-4
    centre: float = 0.5

    def __call__(self, images: Tensor) -> Tensor:
        return self.weight * (images - self.centre).square().flatten(1).mean(dim=1)


def shifts(moving: Tensor, target: Tensor) -> Tensor:
    """Rows and columns by which to roll each image ``... c h w`` so that it comes nearest to its target.

    The peak of the circular cross-correlation, taken by FFT: a roll keeps an image's length, so the largest product
    with the target is the smallest distance |roll(x) - y|_2 over all rolls.
    """
    height, width = moving.shape[-2:]
    spectrum = torch.fft.rfft2(target) * torch.fft.rfft2(moving).conj()
    agreement = torch.fft.irfft2(spectrum, s=(height, width)).sum(dim=-3)
    peak = agreement.flatten(-2).argmax(dim=-1)
    return torch.stack([peak // width, peak % width], dim=-1)


def roll(images: Tensor, by: Tensor) -> Tensor:
    """Each image ``... c h w`` rolled by its own rows and columns."""
    height, width = images.shape[-2:]
    rows = (torch.arange(height, device=images.device) - by[..., 0, None]) % height
    columns = (torch.arange(width, device=images.device) - by[..., 1, None]) % width
    moved = torch.take_along_dim(images, rows[..., None, :, None], dim=-2)
    return torch.take_along_dim(moved, columns[..., None, None, :], dim=-1)


def register(moving: Tensor, target: Tensor) -> Tensor:
    """Each image at the place where it comes nearest to its target."""
    target = target.expand_as(moving)
    return roll(moving, shifts(moving, target))


@dataclass(frozen=True)
class GroupConsistency(ImagePrior):
    """Weight times |x_g - E|_2, E = the mean over all restarts g of x_g registered to their plain mean.

    R_group of Yin et al. [2021]: restarts that found the same image keep one another from straying. Each image
    is registered by the whole-pixel circular translation that brings it nearest to the mean, where the paper fits a
    flow by RANSAC. ``registered=False``, and any time before the share ``after`` of the budget, is the paper's "lazy"
    form, E = plain mean. Image i is compared with image i: restarts that found examples of one class in different
    orders are not brought into one.
    """

    weight: float = 0.1
    registered: bool = True
    after: float = 0.25

    def __call__(self, images: Tensor) -> Tensor:
        seen = images.detach()
        consensus = seen.mean(dim=0)
        if self.registered:
            consensus = register(seen, consensus).mean(dim=0)
        return self.weight * vector_norm((images - consensus).flatten(1), dim=1)

    def at(self, spent: float) -> Prior:
        return self if spent >= self.after else replace(self, registered=False)
