"""Activations made of pieces of parabolas: hard-swish, hard-sigmoid, ReLU6, clamps, absolute values, shrinkage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks.matching.engine.layers.base import (
    Asked,
    Layer,
    LayerPoint,
    Maybe,
    Memory,
    Motion,
    Weights,
    add_maybe,
)

Coefficients = tuple[float, float, float]


@dataclass(frozen=True)
class Piecewise(Layer):
    """a x^2 + b x + c with coefficients of their own between the edges; which piece an entry is on is its switch."""

    edges: tuple[float, ...]
    pieces: tuple[Coefficients, ...]
    upwards: bool = True
    """Whether an entry that lies on an edge belongs to the piece below it."""
    needs_cotangent: ClassVar[bool] = True
    switches: ClassVar[bool] = True

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        square, slope, offset = self._coefficients(x) if frozen is None else frozen[1]
        first: Tensor | float = slope
        y = x * slope
        if square is not None:
            y, first = y + square * x * x, 2 * square * x + slope
        if offset is not None:
            y = y + offset
        return y, (first, (square, slope, offset))

    def _coefficients(self, x: Tensor) -> tuple[Maybe, Tensor, Maybe]:
        above = [x > edge if self.upwards else x >= edge for edge in self.edges]
        found: list[Maybe] = []
        for values in zip(*self.pieces):
            if not any(values) and len(found) != 1:
                found.append(None)
                continue
            one = torch.full_like(x, values[0])
            for mask, coefficient in zip(above, values[1:], strict=True):
                one = torch.where(mask, coefficient, one)
            found.append(one)
        square, slope, offset = found
        assert slope is not None
        return square, slope, offset

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        return (at.memory[0] * gy if asked.inputs[0] else None,)

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        dx = tangents[0]
        return None if dx is None else at.memory[0] * dx, dx

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        if not asked.inputs[0]:
            return (None,)
        first, (square, _, _) = at.memory
        dgx = None if dgy is None else first * dgy
        if square is None or along.memory is None or gy is None:
            return (dgx,)
        return (add_maybe(dgx, 2 * square * along.memory * gy),)


_IDENTITY, _ZERO = (0.0, 1.0, 0.0), (0.0, 0.0, 0.0)


def clamp(low: float | None, high: float | None, *, upwards: bool) -> Piecewise:
    edges, pieces = [], [_IDENTITY]
    if low is not None:
        edges, pieces = [low], [(0.0, 0.0, low), _IDENTITY]
    if high is not None:
        edges, pieces = [*edges, high], [*pieces, (0.0, 0.0, high)]
    return Piecewise(tuple(edges), tuple(pieces), upwards)


HARD_SWISH = Piecewise((-3.0, 3.0), (_ZERO, (1 / 6, 0.5, 0.0), _IDENTITY))
HARD_SIGMOID = Piecewise((-3.0, 3.0), (_ZERO, (0.0, 1 / 6, 0.5), (0.0, 0.0, 1.0)))
ABSOLUTE = Piecewise((0.0,), ((0.0, -1.0, 0.0), _IDENTITY))


def soft_shrink(width: float) -> Piecewise:
    return Piecewise((-width, width), ((0.0, 1.0, width), _ZERO, (0.0, 1.0, -width)))


def hard_shrink(width: float) -> Piecewise:
    return Piecewise((-width, width), (_IDENTITY, _ZERO, _IDENTITY))


def threshold(edge: float, below: float) -> Piecewise:
    return Piecewise((edge,), ((0.0, 0.0, below), _IDENTITY))


def leaky(slope: float) -> Piecewise:
    return Piecewise((0.0,), ((0.0, slope, 0.0), _IDENTITY))
