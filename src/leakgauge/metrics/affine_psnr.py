"""PSNR after the best gain and offset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric
from leakgauge.metrics.psnr import PSNR


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
