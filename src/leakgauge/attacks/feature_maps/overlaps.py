"""Feature maps out of the span of their overlapping patches.

The row space of a convolution's gradient is the span of the patches that its kernel saw (see `span.layer_spans`), which
tells neither where a patch was nor in which image. But patches overlap: what two of them see of one position is the
same, and what they see of the padding is zero. With V a basis of the span, in which patch p is V^T a_p, both say that
linear functions of all a_p together are zero; the maps of the batch, and what is mixed of them, are all that fulfils
them. So a batch of b images leaves exactly b directions, which one eigenvalue problem finds, with neither a search nor
a cotangent, a label or a loss: b eigenvalues are rounding, and the next is of the order of one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.attacks.feature_maps.taps import Taps

LARGEST = 8_192
"""Unknowns of the largest problem that is set up; its matrix takes half a gigabyte."""

_CUBE, _SHARE = 6e10, 0.25
"""The cube of the unknowns that a second of a core factorises, and the share of a budget that this may take."""

_DENSE = 1_024
"""Up to so many unknowns all eigenvalues are taken, beyond it the smallest by inverse iteration."""

_ROUNDS, _SHIFT, _SPARE = 4, 1e-9, 4


def largest_within(seconds: float | None) -> int:
    """Unknowns of the largest problem that a budget allows.

    >>> largest_within(None), largest_within(60.0), largest_within(5.0)
    (8192, 8192, 4217)
    """
    return LARGEST if seconds is None else min(LARGEST, int((_SHARE * _CUBE * seconds) ** (1 / 3)))


class OverlapMaps(NamedTuple):
    """What of a batch's maps the overlaps tell: the directions of least contradiction, in order."""

    maps: Tensor
    """count x channels x input positions, orthonormal; positions that no patch sees are zero."""
    contradiction: Tensor
    """Of these and of the next direction, relative to the mean over all."""

    @property
    def gap(self) -> float:
        """By how many times the next direction contradicts itself more than the last of the batch."""
        last, following = self.contradiction[-2:]
        return float(following / last.clamp_min(torch.finfo(last.dtype).eps))


def maps_in_span(span: Tensor, taps: Taps, count: int) -> OverlapMaps:
    """The maps of ``count`` images in a span, rank x channels x places of the kernel, orthonormal."""
    rank, channels, _ = span.shape
    outputs = len(taps.positions)
    matrix = _contradictions(span, taps)
    sizes, vectors = _smallest(matrix, count + 1)
    patches = torch.einsum("npr,rck->npkc", vectors.mT[:count].reshape(count, outputs, rank), span)
    maps = _gather(patches, taps, channels)
    turned, _ = torch.linalg.qr(maps.flatten(1).mT)
    return OverlapMaps(turned.mT.reshape(maps.shape), sizes / matrix.diagonal().mean())


def _contradictions(span: Tensor, taps: Taps) -> Tensor:
    """The quadratic form of all coefficients that says how much patches contradict one another and the padding."""
    rank, channels, kernel = span.shape
    flat = span.permute(2, 0, 1).reshape(kernel * rank, channels)
    products = (flat @ flat.mT).view(kernel, rank, kernel, rank)
    outputs = len(taps.positions)
    matrix = span.new_zeros(outputs, rank, outputs, rank)
    own = sum((products[place, :, place] for place in range(kernel)), span.new_zeros(rank, rank))
    for output in range(outputs):
        matrix[output, :, output] += own
    seen_by: list[list[tuple[int, int]]] = [[] for _ in range(taps.inputs)]
    for output, row in enumerate(taps.positions.tolist()):
        for place, position in enumerate(row):
            if position >= 0:
                seen_by[position].append((output, place))
    # The deviations of what is seen of a position from their mean: its own square was added, that of the sum goes off.
    for members in seen_by:
        for output, place in members:
            for other, elsewhere in members:
                matrix[output, :, other] -= products[place, :, elsewhere] / len(members)
    return matrix.view(outputs * rank, outputs * rank)


def _smallest(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The smallest eigenvalues, at least zero, and their vectors."""
    if len(matrix) <= _DENSE:
        sizes, vectors = torch.linalg.eigh(matrix)
    else:
        shift = _SHIFT * float(matrix.diagonal().mean())
        factor = torch.linalg.cholesky(matrix + shift * torch.eye(len(matrix), dtype=matrix.dtype))
        generator = torch.Generator().manual_seed(0)
        block = torch.randn(len(matrix), count + _SPARE, generator=generator, dtype=matrix.dtype)
        for _ in range(_ROUNDS):
            block = torch.linalg.qr(torch.cholesky_solve(block, factor))[0]
        sizes, turn = torch.linalg.eigh(block.mT @ matrix @ block)
        vectors = block @ turn
    return sizes[:count].clamp_min(0.0), vectors[:, :count]


def _gather(patches: Tensor, taps: Taps, channels: int) -> Tensor:
    """The mean of what patches, n x outputs x places x channels, see of each position."""
    inside = taps.positions >= 0
    places = taps.positions[inside]
    seen = patches[:, inside]
    total = patches.new_zeros(len(patches), taps.inputs, channels).index_add_(1, places, seen)
    times = torch.bincount(places, minlength=taps.inputs).clamp_min(1)
    return (total / times[None, :, None]).mT
