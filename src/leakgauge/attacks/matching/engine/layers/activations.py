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
    slope: Callable[[Tensor, Tensor], Tensor]
    """f' from input and output."""
    bend: Callable[[Tensor, Tensor, Tensor], Tensor]
    """f'' from input, output and slope."""
    needs_cotangent: ClassVar[bool] = True

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        y = self.function(inputs[0])
        return y, (inputs[0], y, self.slope(inputs[0], y))

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        return (at.memory[2] * gy if asked.inputs[0] else None,)

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        dx = tangents[0]
        return (None, None) if dx is None else (at.memory[2] * dx, dx)

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        if not asked.inputs[0]:
            return (None,)
        dgx = None if dgy is None else at.memory[2] * dgy
        if along.memory is None:
            return (dgx,)
        assert gy is not None
        bent = (along.memory * gy).mul_(self.bend(*at.memory))
        return (bent if dgx is None else dgx.add_(bent),)


def smooth_by_autograd(function: Callable[[Tensor], Tensor]) -> Smooth:
    """Any smooth activation, its derivatives taken by autograd at each value sweep."""

    def slope(x: Tensor, y: Tensor | None = None) -> Tensor:
        return vjp(function, x)[1](torch.ones_like(x))[0]

    def bend(x: Tensor, y: Tensor, first: Tensor) -> Tensor:
        return vjp(slope, x)[1](torch.ones_like(x))[0]

    return Smooth(function, slope, bend)


def _silu_bend(x: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    """Of x s(x), s the sigmoid: (1 - s) (f' + s (1 - y)), as f' = s + y (1 - s)."""
    share = torch.sigmoid(x)
    return (1 - y).mul_(share).add_(slope).mul_(1 - share)


def _gelu_bend(x: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    """Of x Phi(x), with phi = Phi': (2 - x^2) phi(x)."""
    square = x * x
    return (square * -0.5).exp_().mul_(1 / math.sqrt(2 * math.pi)).mul_(2 - square)


def _softplus_slope(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x > _STRAIGHT, 1.0, torch.sigmoid(x))


_STRAIGHT = 20.0
"""From here on torch takes x for softplus(x)."""


def _softplus_bend(x: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    return slope * (1 - slope)


SMOOTH: Mapping[str, Smooth] = {
    "sigmoid": Smooth(torch.sigmoid, lambda x, y: y * (1 - y), lambda x, y, first: first * (1 - 2 * y)),
    "tanh": Smooth(torch.tanh, lambda x, y: 1 - y * y, lambda x, y, first: -2 * y * first),
    "gelu": Smooth(functional.gelu, lambda x, y: _aten.gelu_backward(torch.ones_like(x), x), _gelu_bend),
    "silu": Smooth(functional.silu, lambda x, y: _aten.silu_backward(torch.ones_like(x), x), _silu_bend),
    "softplus": Smooth(functional.softplus, _softplus_slope, _softplus_bend),
    "exp": Smooth(torch.exp, lambda x, y: y, lambda x, y, first: y),
    "log": Smooth(torch.log, lambda x, y: 1 / x, lambda x, y, first: -first * first),
    "sqrt": Smooth(torch.sqrt, lambda x, y: 0.5 / y, lambda x, y, first: -0.5 * first / x),
    "rsqrt": Smooth(torch.rsqrt, lambda x, y: -0.5 * y / x, lambda x, y, first: -1.5 * first / x),
    "square": Smooth(torch.square, lambda x, y: 2 * x, lambda x, y, first: torch.full_like(x, 2.0)),
    "reciprocal": Smooth(torch.reciprocal, lambda x, y: -y * y, lambda x, y, first: -2 * y * first),
    "sin": Smooth(torch.sin, lambda x, y: torch.cos(x), lambda x, y, first: -y),
    "cos": Smooth(torch.cos, lambda x, y: -torch.sin(x), lambda x, y, first: -y),
}


def power(exponent: float) -> Smooth:
    def bend(x: Tensor, y: Tensor, first: Tensor) -> Tensor:
        return exponent * (exponent - 1) * x ** (exponent - 2)

    return Smooth(lambda x: x**exponent, lambda x, y: exponent * x ** (exponent - 1), bend)
