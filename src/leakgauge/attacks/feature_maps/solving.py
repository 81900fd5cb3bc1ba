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

LARGEST = 3_072
"""Unknowns of one channel up to which they are solved for."""


class Solved(NamedTuple):
    """A solution, and the share of the gradient that it leaves unexplained."""

    value: Tensor
    residual: float


class Equations(NamedTuple):
    """What the gradient of one convolution says of its inputs.

    ``gradient`` is outputs x channels x places of the kernel, ``cotangents`` images x outputs x output positions.
    """

    gradient: Tensor
    cotangents: Tensor
    taps: Taps

    def matrix(self) -> Tensor:
        """From the positions of all images, of any one channel, to the gradient of that channel's weights."""
        outputs, _, kernel = self.gradient.shape
        images = len(self.cotangents)
        matrix = self.gradient.new_zeros(images, outputs, kernel, self.taps.inputs)
        for place, positions in enumerate(self.taps.positions.unbind(dim=1)):
            inside = positions >= 0
            matrix[:, :, place, positions[inside]] = self.cotangents[:, :, inside]
        return matrix.permute(1, 2, 0, 3).reshape(outputs * kernel, images * self.taps.inputs)

    def wanted(self) -> Tensor:
        return self.gradient.permute(0, 2, 1).flatten(0, 1)


def solve_inputs(*equations: Equations) -> Solved | None:
    """The maps, images x channels x input positions, that convolutions saw; None where several fit.

    A channel of the input has a column of the gradient to itself, so that one matrix serves all of them. Convolutions
    that see the same maps count as one, each brought to unit length.
    """
    images, inputs = len(equations[0].cotangents), equations[0].taps.inputs
    if images * inputs > min(LARGEST, sum(len(one.wanted()) for one in equations)):
        return None
    lengths = [one.gradient.norm().clamp_min(torch.finfo(one.gradient.dtype).tiny) for one in equations]
    matrix = torch.cat([one.matrix() / length for one, length in zip(equations, lengths, strict=True)])
    wanted = torch.cat([one.wanted() / length for one, length in zip(equations, lengths, strict=True)])
    found = _least_squares(matrix, wanted)
    if found is None:
        return None
    return Solved(found.value.view(images, inputs, -1).mT.contiguous(), found.residual)


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
