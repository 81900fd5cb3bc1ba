"""Activations, entry by entry: those that switch, and those with two derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import vjp
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
)

_aten = torch.ops.aten


@dataclass(frozen=True)
class Rectifier(Linearly):
    """ReLU and, with a slope below zero, LeakyReLU; the sign of the output tells which side it is on."""

    slope: float = 0.0
    overwrite: bool = False
    """Nobody else reads the input, so the output may take its place."""
    switches: ClassVar[bool] = True

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        if frozen is not None:
            return self.along(frozen, x), frozen
        if self.slope != 0:
            y = functional.leaky_relu(x, self.slope)
        elif self.overwrite:
            y = x.relu_()
        else:
            y = x.relu()
        return y, y

    def along(self, memory: Tensor, x: Tensor) -> Tensor:
        if self.slope == 0:
            return _aten.threshold_backward(x, memory, 0)
        return _aten.leaky_relu_backward(x, memory, self.slope, True)


@dataclass(frozen=True)
class Smooth(Layer):
    """An activation with two derivatives, entry by entry: gx = f'(x) gy, dgx = f'(x) dgy + f''(x) dx gy."""

    function: Callable[[Tensor], Tensor]
    derivatives: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """First and second, from input and output."""
    needs_cotangent: ClassVar[bool] = True

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        y = self.function(inputs[0])
        return y, self.derivatives(inputs[0], y)

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        return (at.memory[0] * gy if asked.inputs[0] else None,)

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        dx = tangents[0]
        return (None, None) if dx is None else (at.memory[0] * dx, at.memory[1] * dx)

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        if not asked.inputs[0]:
            return (None,)
        dgx = None if dgy is None else at.memory[0] * dgy
        if along.memory is None:
            return (dgx,)
        assert gy is not None
        bend = along.memory * gy
        return (bend if dgx is None else dgx + bend,)


def smooth_by_autograd(function: Callable[[Tensor], Tensor]) -> Smooth:
    """Any smooth activation, its derivatives taken by autograd at each value sweep."""

    def derivatives(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        def slope(x: Tensor) -> Tensor:
            back = vjp(function, x)[1]
            return back(torch.ones_like(x))[0]

        first, again = vjp(slope, x)[:2]
        return first, again(torch.ones_like(x))[0]

    return Smooth(function, derivatives)


def _sigmoid_derivatives(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    first = y * (1 - y)
    return first, first * (1 - 2 * y)


def _tanh_derivatives(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    first = 1 - y * y
    return first, -2 * y * first


def _silu_derivatives(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Of x s(x), s the sigmoid: s (1 + x (1 - s)), for which torch has one kernel, and s (1 - s) (2 + x (1 - 2 s))."""
    share = torch.sigmoid(x)
    bend = share * (1 - share) * (2 + x * (1 - 2 * share))
    return _aten.silu_backward(torch.ones_like(x), x), bend


def _gelu_derivatives(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Of x Phi(x): Phi(x) + x phi(x), for which torch has one kernel, and (2 - x^2) phi(x), with phi = Phi'."""
    square = x * x
    density = torch.exp(-0.5 * square) / math.sqrt(2 * math.pi)
    return _aten.gelu_backward(torch.ones_like(x), x), (2 - square) * density


SMOOTH: Mapping[str, Smooth] = {
    "sigmoid": Smooth(torch.sigmoid, _sigmoid_derivatives),
    "tanh": Smooth(torch.tanh, _tanh_derivatives),
    "gelu": Smooth(functional.gelu, _gelu_derivatives),
    "silu": Smooth(functional.silu, _silu_derivatives),
    "softplus": smooth_by_autograd(functional.softplus),
}
