"""Peak signal-to-noise ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric

# An exact recovery has an infinite ratio; the cap, an error of 1e-10 per pixel, keeps means finite.
_EXACT = 200.0


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
