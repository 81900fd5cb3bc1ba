from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.metrics.alignment import Comparison

# An exact recovery has an infinite ratio; the cap, an error of 1e-10 per pixel, keeps means finite.
_EXACT = 200.0


@dataclass(frozen=True)
class PSNR:
    """Peak signal-to-noise ratio of pixels in [0, 1]: 10 log10(1 / mean squared error), at most 200 dB.

    >>> white = torch.ones(1, 1, 2, 2)
    >>> PSNR()(Comparison(white, white - 0.1, None, torch.zeros(1), None)).round(decimals=3)
    tensor([20.], dtype=torch.float64)
    """

    name: ClassVar[str] = "psnr"
    unit: ClassVar[str] = "dB"
    higher_is_leakier: ClassVar[bool] = True
    binary: ClassVar[bool] = False

    def __call__(self, comparison: Comparison) -> Tensor:
        difference = comparison.reconstructions.double() - comparison.originals.double()
        ratio = -10 * difference.flatten(1).square().mean(dim=1).log10()
        return torch.where(comparison.measured, ratio.clamp(max=_EXACT), torch.nan)
