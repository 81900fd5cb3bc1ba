"""A network that is wide where its maps are small, and the update of photographs through it."""

from __future__ import annotations

from torch import Tensor, nn

from leakgauge.data import Photos
from leakgauge.types import Batch

SIDE = 8
SHAPE = (3, SIDE, SIDE)


def wide(classes: int = 5) -> nn.Module:
    """The last two convolutions see 16 positions with 64 and 96 channels."""
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(),
        nn.Conv2d(24, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(64, 96, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, classes),
    )  # fmt: skip


def photographs(*places: int, side: int = SIDE) -> Batch:
    test = Photos(size=side)().test
    return Batch(test.inputs[list(places)], test.labels[list(places)] % 5)


def patches(layer: nn.Conv2d, values: Tensor) -> Tensor:
    """The inputs of a convolution as its kernel sees them, one row per position."""
    unfolded = nn.functional.unfold(values, layer.kernel_size, padding=layer.padding, stride=layer.stride)
    return unfolded.mT.flatten(0, 1)
