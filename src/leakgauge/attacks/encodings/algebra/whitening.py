"""What an attacker looks at instead of an encoding: views that a mask does not change, and feature maps.

In a feature map the inner product of two images says whether they share a part. Real images are not the independent
vectors of Huang et al. [2020, section 2]: all of them share their large, smooth components. A feature map flattens
those; fit on images that are normalised as those that were mixed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import CENTRE

FeatureMap = Callable[[Tensor], Tensor]
"""From images n c h w to rows n d."""


class Features(Protocol):
    def fit(self, images: Tensor) -> FeatureMap:
        """The map that the attacker's own images n c h w lead to."""
        ...


def centred(images: Tensor) -> Tensor:
    """Pixels in [-1, 1], the scale on which a key flips signs.

    >>> centred(torch.tensor([0.0, 0.5, 1.0]))
    tensor([-1.,  0.,  1.])
    """
    return 2 * (images - CENTRE)


def uncentred(pixels: Tensor) -> Tensor:
    """The inverse of `centred`."""
    return pixels / 2 + CENTRE


def unit(rows: Tensor) -> Tensor:
    """Rows of length one; a row of zeros stays."""
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


class Whitener(NamedTuple):
    """x -> L^-1 (x - mean), where L L^T is a covariance."""

    mean: Tensor
    factor: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        factor = self.factor.to(rows).mT
        return torch.linalg.solve_triangular(factor, rows - self.mean.to(rows), upper=True, left=False)


def whitener(rows: Tensor, ridge: float) -> Whitener:
    """The whitening of rows n d by Cholesky's factor of C + ridge * (tr C / d) I.

    PCA, ZCA and Cholesky whitening differ by a rotation, which no inner product sees; this one needs no eigenvectors
    (for d = 3072: one second instead of ten).
    """
    mean = rows.mean(dim=0)
    deviations = rows - mean
    covariance = (deviations.mT @ deviations / len(rows)).double()
    covariance.diagonal().add_(ridge * covariance.diagonal().mean())
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if bool(failed) or not bool(factor.isfinite().all()):
        raise InvalidCase(
            f"The covariance of {len(rows)} images with {rows.shape[1]} pixels is singular; pass more auxiliary images "
            "or a larger `ridge`."
        )
    return Whitener(mean, factor.to(rows))


@dataclass(frozen=True)
class PlainPixels:
    """The pixels themselves, around the centre: the raw statistic."""

    def fit(self, images: Tensor) -> FeatureMap:
        del images
        return lambda shown: centred(shown).flatten(1)


@dataclass(frozen=True)
class UnitLength:
    """Each image with its mean removed and scaled to length one: the published normalisation [Huang et al., 2020]."""

    def fit(self, images: Tensor) -> FeatureMap:
        del images
        return _normalise


@dataclass(frozen=True)
class Laplacian:
    """x minus the mean of its four neighbours, the image continued beyond its border; needs no fit."""

    def fit(self, images: Tensor) -> FeatureMap:
        del images
        return _laplacian


@dataclass(frozen=True)
class HighPass:
    """x minus its Gaussian blur of deviation ``sigma`` pixels; needs no fit."""

    sigma: float = 1.0

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise InvalidCase(f"HighPass(sigma=...) must be positive, got {self.sigma}; it is the width of a blur.")

    def fit(self, images: Tensor) -> FeatureMap:
        del images
        return lambda shown: (centred(shown) - _blur(centred(shown), self.sigma)).flatten(1)


@dataclass(frozen=True)
class Whitened:
    """(C + ridge * mean variance)^-1/2 (x - mean), C the covariance of auxiliary images.

    Among rows with noise of covariance C the inner product of whitened rows is the most powerful linear test for a
    given image (the matched filter), and the other images of a mixture are such noise. On mixtures of CIFAR-100 ridges
    of 1e-3 and 4e-3 are equal and 1.6e-2 is worse.
    """

    ridge: float = 4e-3

    def __post_init__(self) -> None:
        _check_ridge(self.ridge)

    def fit(self, images: Tensor) -> FeatureMap:
        whiten = whitener(centred(images).flatten(1), self.ridge)
        return lambda shown: whiten(centred(shown).flatten(1))


def _normalise(images: Tensor) -> Tensor:
    rows = centred(images).flatten(1)
    return unit(rows - rows.mean(dim=1, keepdim=True))


def _laplacian(images: Tensor) -> Tensor:
    wide = pad(centred(images), (1, 1, 1, 1), mode="replicate")
    around = wide[:, :, :-2, 1:-1] + wide[:, :, 2:, 1:-1] + wide[:, :, 1:-1, :-2] + wide[:, :, 1:-1, 2:]
    return (wide[:, :, 1:-1, 1:-1] - around / 4).flatten(1)


def _blur(pixels: Tensor, sigma: float) -> Tensor:
    radius = max(1, round(3 * sigma))
    offsets = torch.arange(-radius, radius + 1, dtype=pixels.dtype, device=pixels.device)
    weights = (-(offsets**2) / (2 * sigma**2)).exp()
    weights = weights / weights.sum()
    channels = pixels.shape[1]
    wide = pad(pixels, (radius,) * 4, mode="replicate")
    rows = conv2d(wide, weights.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)
    return conv2d(rows, weights.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)


def _check_ridge(ridge: float) -> None:
    if not ridge >= 0:
        raise InvalidCase(f"A ridge is at least 0, got {ridge}; it is a share of the mean variance of a pixel.")


class View(ABC):
    """Encodings, and the images that are compared with them, on one scale: pixels in [0, 1]."""

    @abstractmethod
    def encodings(self, images: Tensor) -> Tensor: ...

    def images(self, images: Tensor) -> Tensor:
        return self.encodings(images)


@final
@dataclass(frozen=True)
class AsPublished(View):
    """The encoding itself: right for Mixup, useless under a mask."""

    def encodings(self, images: Tensor) -> Tensor:
        return images


@final
@dataclass(frozen=True)
class Magnitudes(View):
    """|x|: what a mask of signs leaves, and all that it leaves [Carlini et al., 2021]."""

    def encodings(self, images: Tensor) -> Tensor:
        return uncentred(centred(images).abs())


@final
@dataclass(frozen=True)
class Squares(View):
    """x^2, of which a mixture has sum_j lam_j^2 x_j^2 plus mixed terms of mean zero [Braverman, 2020]."""

    def encodings(self, images: Tensor) -> Tensor:
        return uncentred(centred(images).square())


@final
@dataclass(frozen=True)
class Undemasked(View):
    """|x~| compared with whole images: where an attack stands before it has guessed any sign."""

    def encodings(self, images: Tensor) -> Tensor:
        return uncentred(centred(images).abs())

    def images(self, images: Tensor) -> Tensor:
        return images
