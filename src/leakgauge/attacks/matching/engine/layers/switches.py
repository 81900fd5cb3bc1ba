"""Activations made of pieces of parabolas: hard-swish, hard-sigmoid, ReLU6, clamps, absolute values, shrinkage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from leakgauge.attacks.matching.engine.layers.base import (
    Asked,
    Layer,
    LayerPoint,
    Linearly,
    Maybe,
    Memory,
    Motion,
    Weights,
    add_maybe,
)

_aten = torch.ops.aten

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
        above = [(x > edge if self.upwards else x >= edge).to(x.dtype) for edge in self.edges]
        found: list[Maybe] = []
        for values in zip(*self.pieces):
            if not any(values) and len(found) != 1:
                found.append(None)
                continue
            one = torch.full_like(x, values[0])
            for mask, before, after in zip(above, values, values[1:]):
                if before != after:
                    one.add_(mask, alpha=after - before)
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


@dataclass(frozen=True)
class Clamped(Linearly):
    """ReLU6 and hard tanh: the output tells which piece an entry is on, and stays where it is saturated."""

    low: float
    high: float
    overwrite: bool = False
    """Nobody else reads the input, so the output may take its place."""
    switches: ClassVar[bool] = True

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        if frozen is not None:
            return self.along(frozen, x - frozen).add_(frozen), frozen
        y = functional.hardtanh(x, self.low, self.high, inplace=self.overwrite)
        return y, y

    def along(self, memory: Tensor, x: Tensor) -> Tensor:
        return _aten.hardtanh_backward(x, memory, self.low, self.high)


@dataclass(frozen=True)
class HardSigmoid(Linearly):
    """x/6 + 1/2 between -3 and 3, saturated beyond."""

    switches: ClassVar[bool] = True

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        if frozen is not None:
            before, y = frozen
            return self.along(frozen, x - before).add_(y), frozen
        y = functional.hardsigmoid(x)
        return y, (x, y)

    def along(self, memory: Memory, x: Tensor) -> Tensor:
        return _aten.hardsigmoid_backward(x, memory[0])


@dataclass(frozen=True)
class HardSwish(Layer):
    """x times its hard sigmoid: a parabola with second derivative 1/3 between -3 and 3, straight beyond.

    With its pieces held it is y + f'(x) d + f'' d^2 / 2 after a move by d, of which a difference needs no second order.
    """

    needs_cotangent: ClassVar[bool] = True
    switches: ClassVar[bool] = True

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        if frozen is None:
            y = functional.hardswish(x)
            return y, (x, y, None)
        before, y, _ = frozen
        move = x - before
        return _aten.hardswish_backward(move, before).add_(y), (before, y, move)

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        if not asked.inputs[0]:
            return (None,)
        x, _, move = at.memory
        gx = _aten.hardswish_backward(gy, x)
        return (gx if move is None else gx.add_(self._bent(x, move, gy)),)

    def _bent(self, x: Tensor, dx: Tensor, gy: Tensor) -> Tensor:
        return _aten.hardtanh_backward((dx * gy).mul_(1 / 3), x, -3.0, 3.0)

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        dx = tangents[0]
        return None if dx is None else _aten.hardswish_backward(dx, at.memory[0]), dx

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        if not asked.inputs[0]:
            return (None,)
        x = at.memory[0]
        dgx = None if dgy is None else _aten.hardswish_backward(dgy, x)
        if along.memory is None or gy is None:
            return (dgx,)
        bent = self._bent(x, along.memory, gy)
        return (bent if dgx is None else dgx.add_(bent),)


_IDENTITY, _ZERO = (0.0, 1.0, 0.0), (0.0, 0.0, 0.0)


def clamp(low: float | None, high: float | None, *, upwards: bool) -> Piecewise:
    edges, pieces = [], [_IDENTITY]
    if low is not None:
        edges, pieces = [low], [(0.0, 0.0, low), _IDENTITY]
    if high is not None:
        edges, pieces = [*edges, high], [*pieces, (0.0, 0.0, high)]
    return Piecewise(tuple(edges), tuple(pieces), upwards)


ABSOLUTE = Piecewise((0.0,), ((0.0, -1.0, 0.0), _IDENTITY))


def soft_shrink(width: float) -> Piecewise:
    return Piecewise((-width, width), ((0.0, 1.0, width), _ZERO, (0.0, 1.0, -width)))


def hard_shrink(width: float) -> Piecewise:
    return Piecewise((-width, width), (_IDENTITY, _ZERO, _IDENTITY))


def threshold(edge: float, below: float) -> Piecewise:
    return Piecewise((edge,), ((0.0, 0.0, below), _IDENTITY))


def leaky(slope: float) -> Piecewise:
    return Piecewise((0.0,), ((0.0, slope, 0.0), _IDENTITY))
