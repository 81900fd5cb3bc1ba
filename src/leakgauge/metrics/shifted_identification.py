"""Which original a reconstruction is of, wherever in the picture it came back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric

_REACH = 4
"""A picture may come back displaced by up to one part in so many of its height and width."""

_TOGETHER = 64
"""Distractors whose transforms are held at a time."""

_ROUNDING = 1e-10
"""Of the square of an image, below which two errors count as equal."""


@final
@dataclass(frozen=True)
class ShiftedIdentification(Metric):
    """1 if some displacement of the original is nearer (squared error) to what came back than any of any distractor.

    The gradient of a net that averages its features hardly says where a picture is, so that it may come back clean and
    displaced: that has leaked, and squared error pixel by pixel does not see it. Displacements are circular, up to a
    quarter of the height and width either way, and those of the originals and of the distractors are the same: none is
    preferred, and by chance it scores what `Identification` does. All of them are tried at once by their Fourier
    transforms. A tie is a miss.

    >>> images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> distractors = torch.rand(9, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    >>> moved = images.roll(2, dims=3)
    >>> ShiftedIdentification()(Comparison(images, moved, distractors, torch.zeros(2), None))
    tensor([1., 1.], dtype=torch.float64)
    """

    name: ClassVar[str] = "identification_shifted"
    title: ClassVar[str] = "Identified, displaced or not"
    serves: ClassVar[Kind] = Kind.IMAGES
    binary: ClassVar[bool] = True
    standard: ClassVar[bool] = False

    def __call__(self, comparison: Comparison) -> Tensor:
        scores = torch.full(comparison.originals.shape[:1], torch.nan, dtype=torch.float64)
        distractors = comparison.distractors
        if distractors is None or not distractors.shape[-comparison.originals.ndim]:
            return scores
        apart = distractors.ndim > comparison.originals.ndim
        for row in comparison.measured.nonzero().flatten().tolist():
            others = distractors[row] if apart else distractors
            found = comparison.reconstructions[row].double()
            own = nearest_displaced(found, comparison.originals[row : row + 1].double())
            nearest = min(nearest_displaced(found, some.double()).min() for some in others.split(_TOGETHER))
            scores[row] = float(own < nearest - _ROUNDING * found.square().sum())
        return scores


def nearest_displaced(image: Tensor, others: Tensor) -> Tensor:
    """The least squared error of an image c h w and each of others n c h w over all displacements within reach.

    |a|^2 + |b|^2 - 2 <a, b displaced>, where the products with all circular displacements are one correlation.

    >>> image = torch.arange(32.0, dtype=torch.float64).view(1, 4, 8)
    >>> [round(one, 9) for one in nearest_displaced(image, torch.stack([image.roll(-2, 2), image.roll(4, 2)])).tolist()]
    [0.0, 384.0]
    """
    height, width = image.shape[-2:]
    spectrum = torch.fft.rfft2(image) * torch.fft.rfft2(others).conj()
    products = torch.fft.irfft2(spectrum.sum(dim=1), s=(height, width))
    rows, columns = (_within_reach(size).to(image.device) for size in (height, width))
    most = products[:, rows][:, :, columns].flatten(1).amax(dim=1)
    squares = image.square().sum() + others.square().flatten(1).sum(dim=1)
    return (squares - 2 * most).clamp_min(0)


def _within_reach(size: int) -> Tensor:
    """The circular displacements of an axis, backwards ones last.

    >>> _within_reach(8)
    tensor([0, 1, 2, 6, 7])
    """
    reach = size // _REACH
    return torch.cat([torch.arange(reach + 1), torch.arange(size - reach, size)])
