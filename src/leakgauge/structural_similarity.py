"""Mean structural similarity of many pairs of images at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase

_GAUSSIAN_WINDOW, _DEVIATION = 11, 1.5
_SMALLEST_WINDOW = 3
_LUMINANCE, _CONTRAST = 0.01**2, 0.03**2


class Windows(NamedTuple):
    """Images n c h w with the mean and variance of every window that lies within them."""

    pixels: Tensor
    means: Tensor
    variances: Tensor
    rows: Tensor
    columns: Tensor

    def part(self, start: int, stop: int) -> Windows:
        chosen = slice(start, stop)
        return Windows(self.pixels[chosen], self.means[chosen], self.variances[chosen], self.rows, self.columns)


def windows(images: Tensor) -> Windows:
    """What `similarity` needs to know of each image alone.

    The window is an 11 x 11 Gaussian of deviation 1.5 [Wang et al., 2004]; on images with a side below 11 the largest
    odd uniform one that fits.
    """
    height, width = images.shape[2:]
    side = min(height, width)
    if side < _SMALLEST_WINDOW:
        raise InvalidCase(f"Structural similarity needs images of at least 3 x 3 pixels, got {height} x {width}.")
    weights = _window(side).to(images)
    rows, columns = _averaging(weights, height), _averaging(weights, width)
    means = rows @ images @ columns.mT
    variances = rows @ images.square() @ columns.mT - means.square()
    return Windows(images, means, variances, rows, columns)


def similarity(one: Windows, other: Windows) -> Tensor:
    """The mean structural similarity of pixels in [0, 1] of each pair, 1 for equal images; either side may hold one.

    >>> image = windows(torch.eye(8).view(1, 1, 8, 8))
    >>> similarity(image, image)
    tensor([1.])
    """
    product = one.means * other.means
    covariances = one.rows @ (one.pixels * other.pixels) @ one.columns.mT - product
    luminance = (2 * product + _LUMINANCE) / (one.means.square() + other.means.square() + _LUMINANCE)
    structure = (2 * covariances + _CONTRAST) / (one.variances + other.variances + _CONTRAST)
    return (luminance * structure).flatten(1).mean(dim=1)


def _window(side: int) -> Tensor:
    if side < _GAUSSIAN_WINDOW:
        size = side if side % 2 else side - 1
        return torch.full((size,), 1 / size, dtype=torch.float64)
    offsets = torch.arange(_GAUSSIAN_WINDOW, dtype=torch.float64) - _GAUSSIAN_WINDOW // 2
    weights = (-offsets.square() / (2 * _DEVIATION**2)).exp()
    return weights / weights.sum()


def _averaging(weights: Tensor, length: int) -> Tensor:
    """The matrix whose rows are the window at every place where it lies within ``length`` pixels."""
    places = length - len(weights) + 1
    matrix = weights.new_zeros(places, length)
    for place in range(places):
        matrix[place, place : place + len(weights)] = weights
    return matrix
