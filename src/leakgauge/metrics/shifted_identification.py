"""Which original a reconstruction is of, wherever in the picture it came back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric
from leakgauge.metrics.displacement import averaged, nearest_displaced

_SIDE = 64
"""Pixels beyond which pictures are averaged first: where a picture is does not need its finest detail."""

_ROUNDING = 1e-10
"""Of the square of an image, below which two errors count as equal."""


@final
@dataclass(frozen=True)
class ShiftedIdentification(Metric):
    """1 if some displacement of the original is nearer (squared error) to what came back than any of any distractor.

    The gradient of a net that averages its features hardly says where a picture is, so that it may come back clean and
    displaced: that has leaked, and squared error pixel by pixel does not see it. Originals and distractors may be
    displaced alike (`displacement` says how far): none is preferred, and by chance it scores what `Identification`
    does. Large pictures are averaged first. A tie is a miss.

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

    def __call__(self, comparison: Comparison) -> Tensor:
        scores = torch.full(comparison.originals.shape[:1], torch.nan, dtype=torch.float64)
        distractors = comparison.distractors
        if distractors is None or not distractors.shape[-comparison.originals.ndim]:
            return scores
        shared = None if distractors.ndim > comparison.originals.ndim else averaged(distractors.double(), _SIDE)
        originals, reconstructions = (
            averaged(one.double(), _SIDE) for one in (comparison.originals, comparison.reconstructions)
        )
        for row in comparison.measured.nonzero().flatten().tolist():
            others = averaged(distractors[row].double(), _SIDE) if shared is None else shared
            found = reconstructions[row]
            own, nearest = nearest_displaced(found, originals[row : row + 1]), nearest_displaced(found, others).min()
            scores[row] = float(own < nearest - _ROUNDING * found.square().sum())
        return scores
