"""Structural similarity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from skimage.metrics import structural_similarity
from torch import Tensor

from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric

_GAUSSIAN_WINDOW = 11
_SMALLEST_WINDOW = 3


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
