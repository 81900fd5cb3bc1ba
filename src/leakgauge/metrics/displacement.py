"""Pictures compared at all displacements at once: the products with each of them are one correlation, and a correlation
is a product of Fourier transforms. Of few pixels there are few displacements, and plain products are faster.

Displacements are circular, up to a quarter of the height and width either way.
"""

from __future__ import annotations

from math import ceil

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

_REACH = 4
"""A picture may come back displaced by up to one part in so many of its height and width."""
_TOGETHER = 1 << 22
"""Products that are held at a time."""
_FEW_PIXELS = 16 * 16
"""Up to which plain products took half the time of transforms or less."""
_FLAT = 1e-12
"""Of a mean square: what has less contrast has none."""


def nearest_displaced(image: Tensor, others: Tensor) -> Tensor:
    """The least squared error of an image c h w and each of others n c h w over all displacements within reach.

    >>> image = torch.arange(32.0, dtype=torch.float64).view(1, 4, 8)
    >>> [round(one, 9) for one in nearest_displaced(image, torch.stack([image.roll(-2, 2), image.roll(4, 2)])).tolist()]
    [0.0, 384.0]
    """
    squares = image.square().sum() + others.square().flatten(1).sum(dim=1)
    return (squares - 2 * _most(others, image[None])[:, 0]).clamp_min(0)


def unlike_displaced(images: Tensor, candidates: Tensor) -> Tensor:
    """1 - the largest correlation, n k, of each image with each candidate or its mirror image, displaced or not.

    >>> image = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> round(float(unlike_displaced(image, 3 * image.roll(2, dims=3).flip(-1) + 1)), 9)
    0.0
    """
    ours, theirs = _unit(images), _unit(candidates)
    both = _most(ours, torch.cat([theirs, theirs.flip(-1)]))
    return 1 - torch.maximum(*both.chunk(2, dim=1))


def averaged(images: Tensor, side: int) -> Tensor:
    """Images whose longer side is at most ``side`` pixels, by averages over squares where it is more.

    >>> averaged(torch.zeros(1, 3, 224, 160), 32).shape
    torch.Size([1, 3, 32, 23])
    """
    square = ceil(max(images.shape[-2:]) / side)
    return images if square == 1 else avg_pool2d(images, square, ceil_mode=True, count_include_pad=False)


def _unit(images: Tensor) -> Tensor:
    """Without their mean and of length one; zero without contrast, which correlates with nothing."""
    centred = images - images.mean(dim=(1, 2, 3), keepdim=True)
    lengths = centred.square().mean(dim=(1, 2, 3), keepdim=True)
    return torch.where(lengths > _FLAT, centred / (lengths.clamp_min(_FLAT) * images[0].numel()).sqrt(), 0.0)


def _most(images: Tensor, others: Tensor) -> Tensor:
    """The largest inner product, n k, of each image with any displacement within reach of each of k others."""
    rows, columns = (_within_reach(side).to(images.device) for side in images.shape[-2:])
    few = images.shape[-2] * images.shape[-1] <= _FEW_PIXELS
    return (_most_directly if few else _most_by_fourier)(images, others, rows, columns)


def _most_directly(images: Tensor, others: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """By one product with all that is displaced."""
    moves = [(row, column) for row in rows.tolist() for column in columns.tolist()]
    displaced = torch.stack([others.roll(move, dims=(2, 3)) for move in moves], dim=1).flatten(2).flatten(0, 1)
    some = images.flatten(1).split(max(1, _TOGETHER // len(displaced)))
    return torch.cat([(one @ displaced.T).view(len(one), len(others), -1).amax(dim=2) for one in some])


def _most_by_fourier(images: Tensor, others: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    size = (images.shape[-2], images.shape[-1])
    spectra = torch.fft.rfft2(others).conj()
    found = []
    for some in images.split(max(1, _TOGETHER // (len(others) * size[0] * size[1]))):
        joint = torch.einsum("nchw,kchw->nkhw", torch.fft.rfft2(some), spectra)
        products = torch.fft.irfft2(joint, s=size)
        found.append(products[:, :, rows][..., columns].amax(dim=(2, 3)))
    return torch.cat(found)


def _within_reach(size: int) -> Tensor:
    """The circular displacements of an axis, backwards ones last.

    >>> _within_reach(8)
    tensor([0, 1, 2, 6, 7])
    """
    reach = size // _REACH
    return torch.cat([torch.arange(reach + 1), torch.arange(size - reach, size)])
