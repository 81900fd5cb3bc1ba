"""The three unknowns of a convolution's gradient: two of gradient, inputs and cotangents give the third.

The gradient is a sum over images and positions of cotangent times patch: linear in the inputs where the cotangents are
known, and linear in the cotangents where the inputs are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.attacks.feature_maps.taps import Taps

_WORST = 1e6
"""The condition beyond which a system counts as one that has several solutions."""

LARGEST = 6_144
"""Unknowns of one channel up to which they are solved for."""


class Solved(NamedTuple):
    """A solution, and the share of the gradient that it leaves unexplained."""

    value: Tensor
    residual: float


def solve_inputs(gradient: Tensor, cotangents: Tensor, taps: Taps) -> Solved | None:
    """The maps, images x channels x input positions, that a convolution saw; None where several fit.

    ``gradient`` is outputs x channels x places of the kernel, ``cotangents`` images x outputs x output positions. A
    channel of the input has a column of the gradient to itself, so that one matrix serves all of them.
    """
    outputs, channels, kernel = gradient.shape
    images = len(cotangents)
    unknowns = images * taps.inputs
    if unknowns > min(LARGEST, outputs * kernel):
        return None
    matrix = gradient.new_zeros(images, outputs, kernel, taps.inputs)
    for place, positions in enumerate(taps.positions.unbind(dim=1)):
        inside = positions >= 0
        matrix[:, :, place, positions[inside]] = cotangents[:, :, inside]
    matrix = matrix.permute(1, 2, 0, 3).reshape(outputs * kernel, unknowns)
    wanted = gradient.permute(0, 2, 1).reshape(outputs * kernel, channels)
    found = _least_squares(matrix, wanted)
    if found is None:
        return None
    return Solved(found.value.view(images, taps.inputs, channels).mT.contiguous(), found.residual)


def solve_cotangents(gradient: Tensor, maps: Tensor, taps: Taps) -> Solved | None:
    """The cotangents, images x outputs x output positions, that belong to maps; None where several fit."""
    patches = taps.cut(maps).flatten(0, 1).flatten(1)
    found = _least_squares(patches.mT, gradient.flatten(1).mT)
    if found is None:
        return None
    return Solved(found.value.view(len(maps), len(taps.positions), -1).mT.contiguous(), found.residual)


def _least_squares(matrix: Tensor, wanted: Tensor) -> Solved | None:
    """Through the matrix of products, once refined, which is several times faster than by singular values."""
    if len(matrix) < matrix.shape[1]:
        return None
    squares, vectors = torch.linalg.eigh(matrix.mT @ matrix)
    if not bool(squares[0] * _WORST**2 > squares[-1]):
        return None

    def solve(right: Tensor) -> Tensor:
        return vectors @ ((vectors.mT @ (matrix.mT @ right)) / squares[:, None])

    value = solve(wanted)
    value = value + solve(wanted - matrix @ value)
    residual = (wanted - matrix @ value).norm() / wanted.norm().clamp_min(torch.finfo(wanted.dtype).tiny)
    return Solved(value, float(residual))
