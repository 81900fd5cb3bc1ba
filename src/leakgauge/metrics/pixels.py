"""Likeness pixel by pixel: PSNR, the same after a fit of contrast and brightness, and SSIM."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from skimage.metrics import structural_similarity
from torch import Tensor

from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric

# An exact recovery has an infinite ratio; the cap, an error of 1e-10 per pixel, keeps means finite.
_EXACT = 200.0
_GAUSSIAN_WINDOW = 11
_SMALLEST_WINDOW = 3


@final
@dataclass(frozen=True)
class PSNR(Metric):
    """Peak signal-to-noise ratio of pixels in [0, 1]: 10 log10(1 / mean squared error), at most 200 dB.

    >>> white = torch.ones(1, 1, 2, 2)
    >>> PSNR()(Comparison(white, white - 0.1, None, torch.zeros(1), None)).round(decimals=3)
    tensor([20.], dtype=torch.float64)
    """

    name, title, heading = "psnr", "PSNR", "PSNR"
    low, high, exact = -math.inf, _EXACT, _EXACT
    unit, digits = "dB", 1
    serves = Kind.IMAGES

    def __call__(self, comparison: Comparison) -> Tensor:
        difference = comparison.reconstructions.double() - comparison.originals.double()
        ratio = -10 * difference.flatten(1).square().mean(dim=1).log10()
        return torch.where(comparison.measured, ratio.clamp(max=_EXACT), torch.nan)


@final
@dataclass(frozen=True)
class AffinePSNR(Metric):
    """PSNR after the gain and offset per channel that bring the whole batch nearest to the originals.

    BatchNorm in train mode divides contrast and brightness out, so that an update hardly tells them; this says what was
    recovered but for them. The fit needs the originals: it is a way to look at a result, not part of an attack.
    """

    name, title = "psnr_affine", "PSNR (contrast and brightness fitted)"
    low, high, exact = PSNR.low, PSNR.high, PSNR.exact
    unit, digits = "dB", 1
    serves = Kind.IMAGES
    standard = False

    def __call__(self, comparison: Comparison) -> Tensor:
        return PSNR()(replace(comparison, reconstructions=fit_affine(comparison)))


def fit_affine(comparison: Comparison) -> Tensor:
    """The reconstructions with the best gain and offset of each channel, clipped to [0, 1]; missing ones stay so."""
    rows = comparison.measured
    found = torch.where(rows.view(-1, 1, 1, 1), comparison.reconstructions.double(), torch.nan)
    truth = comparison.originals[rows].double()
    if not bool(rows.any()):
        return found
    axes = (0, 2, 3)
    mean, aim = found[rows].mean(axes, keepdim=True), truth.mean(axes, keepdim=True)
    apart = found[rows] - mean
    # A flat channel has no contrast to scale: its gain is 0 and the mean of the originals stands for it.
    gain = (apart * (truth - aim)).sum(axes, keepdim=True) / apart.square().sum(axes, keepdim=True).clamp_min(1e-30)
    return ((found - mean) * gain + aim).clamp(0, 1)


@final
@dataclass(frozen=True)
class SSIM(Metric):
    """Mean structural similarity of pixels in [0, 1], 1 for equal images [Wang et al., 2004].

    The window is the paper's 11 x 11 Gaussian of deviation 1.5; on images with a side below 11 it is the largest odd
    uniform window that fits, and on a side below 3 nothing is measured.

    >>> image = torch.eye(8).view(1, 1, 8, 8)
    >>> SSIM()(Comparison(image, image, None, torch.zeros(1), None))
    tensor([1.], dtype=torch.float64)
    """

    name, title, heading = "ssim", "SSIM", "SSIM"
    low, high, exact = -1.0, 1.0, 1.0
    serves = Kind.IMAGES

    def __call__(self, comparison: Comparison) -> Tensor:
        scores = torch.full(comparison.originals.shape[:1], torch.nan, dtype=torch.float64)
        side = min(comparison.originals.shape[2:])
        if side < _SMALLEST_WINDOW:
            return scores
        for row in comparison.measured.nonzero().flatten().tolist():
            scores[row] = structural_similarity(
                comparison.originals[row].double().numpy(),
                comparison.reconstructions[row].double().numpy(),
                data_range=1.0,
                channel_axis=0,
                use_sample_covariance=False,
                **_window(side),
            )
        return scores


def _window(side: int) -> dict[str, Any]:
    if side >= _GAUSSIAN_WINDOW:
        return {"gaussian_weights": True, "sigma": 1.5}
    return {"win_size": side if side % 2 else side - 1}
