"""Layers that move, choose, scale, add and join what others computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

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
    with_pullback,
)

_aten = torch.ops.aten


@dataclass(frozen=True)
class LinearMap(Linearly):
    """Any linear map without parameters, with its transpose or, where that is not known, by autograd's."""

    function: Callable[[Tensor], Tensor]
    transposed: Callable[[Tensor], Tensor] | None = None

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        if frozen is not None or self.transposed is not None:
            return self.function(inputs[0]), frozen
        return with_pullback(self.function, inputs[0])

    def along(self, memory: Memory, x: Tensor) -> Tensor:
        return self.function(x)

    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        return memory(gy)[0] if self.transposed is None else self.transposed(gy)


@dataclass(frozen=True)
class Reshaped(Linearly):
    """A new shape for the same entries."""

    function: Callable[[Tensor], Tensor]

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        return self.function(inputs[0]), inputs[0].shape

    def along(self, memory: Memory, x: Tensor) -> Tensor:
        return self.function(x)

    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        return gy.reshape(memory)


@dataclass(frozen=True)
class Permuted(Linearly):
    """The axes in another order."""

    order: tuple[int, ...]

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        return inputs[0].permute(self.order), None

    def along(self, memory: Memory, x: Tensor) -> Tensor:
        return x.permute(self.order)

    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        inverse = [0] * len(self.order)
        for place, axis in enumerate(self.order):
            inverse[axis] = place
        return gy.permute(inverse)


@dataclass(frozen=True)
class Shifted(Linearly):
    """sign * x plus a constant, a number or the name of a buffer."""

    constant: str | float
    sign: float
    sign_of_constant: float

    def weights(self, tensors: Mapping[str, Tensor]) -> Weights:
        return tensors[self.constant] if isinstance(self.constant, str) else self.constant

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        return self.along(None, inputs[0]) + self.sign_of_constant * weights, None

    def along(self, memory: Memory, x: Tensor) -> Tensor:
        return x if self.sign == 1 else -x


@dataclass(frozen=True)
class Scaled(Linearly):
    """x times or over a constant, a number or the name of a buffer."""

    constant: str | float
    divide: bool

    def weights(self, tensors: Mapping[str, Tensor]) -> Weights:
        return tensors[self.constant] if isinstance(self.constant, str) else self.constant

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        return self.along(weights, inputs[0]), weights

    def along(self, memory: Memory, x: Tensor) -> Tensor:
        return x / memory if self.divide else x * memory


@dataclass(frozen=True)
class Added(Layer):
    """The sum of two inputs of one shape."""

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        return inputs[0] + inputs[1], None

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        return tuple(gy if want else None for want in asked.inputs)

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        return add_maybe(*tangents), None

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        return tuple(dgy if want else None for want in asked.inputs)


@dataclass(frozen=True)
class Joined(Layer):
    """Inputs side by side along one axis."""

    axis: int

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        return torch.cat(tuple(inputs), self.axis), [x.shape for x in inputs]

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        parts = gy.split([shape[self.axis] for shape in at.memory], self.axis)
        return tuple(part if want else None for part, want in zip(parts, asked.inputs))

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        present = next((tangent for tangent in tangents if tangent is not None), None)
        if present is None:
            return None, None
        filled = [present.new_zeros(s) if t is None else t for t, s in zip(tangents, at.memory)]
        return torch.cat(filled, self.axis), None

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        return (None,) * len(asked.inputs) if dgy is None else self.cotangent(at, dgy, asked)


@dataclass(frozen=True)
class MaxPool(Linearly):
    """Each window passes on its largest entry; the positions are the switches."""

    pool: Callable[[Tensor], tuple[Tensor, Tensor]]
    spatial: int
    switches: ClassVar[bool] = True

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        if frozen is not None:
            return self.along(frozen, x), frozen
        y, positions = self.pool(x)
        return y, (positions, x.shape)

    def along(self, memory: Memory, x: Tensor) -> Tensor:
        positions, _ = memory
        lead = positions.ndim - self.spatial
        return x.flatten(lead).gather(lead, positions.flatten(lead)).view(positions.shape)

    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        positions, shape = memory
        lead = positions.ndim - self.spatial
        flat = torch.zeros_like(gy.flatten(lead)[..., :1]).expand(*gy.shape[:lead], shape[lead:].numel())
        return flat.scatter_add(lead, positions.flatten(lead), gy.flatten(lead)).view(shape)
