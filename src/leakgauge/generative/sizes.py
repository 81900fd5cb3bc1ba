"""How a network that doubles its image reaches any size: it starts from a small grid and is cut in the end."""

from __future__ import annotations

import math

from leakgauge.types import Shape

_SMALLEST = 4


def doublings(image_shape: Shape) -> int:
    """How often a grid of about 4 on its shorter side doubles to reach the image."""
    return max(0, math.ceil(math.log2(min(image_shape[1:]) / _SMALLEST)))


def first_grid(image_shape: Shape) -> tuple[int, int]:
    """Height and width before the first doubling; two at least, so that BatchNorm has values to average.

    >>> first_grid((3, 32, 32)), first_grid((1, 28, 56))
    ((4, 4), (4, 7))
    """
    factor = 2 ** doublings(image_shape)
    height, width = (max(2, math.ceil(side / factor)) for side in image_shape[1:])
    return height, width
