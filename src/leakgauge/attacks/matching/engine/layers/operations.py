"""Operations of torch as layers: sources of tensors, linear maps, and what else autograd can differentiate twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.func import vjp
from torch.utils._pytree import tree_map

from leakgauge.attacks.matching.engine.layers.base import (
    Asked,
    Gradients,
    Layer,
    LayerPoint,
    Linearly,
    Maybe,
    Memory,
    Motion,
    Weights,
    with_pullback,
    write_gradient,
)


class Hole(NamedTuple):
    """The place of the input of this number among an operation's arguments."""

    number: int


class Held(NamedTuple):
    """The place of a constant tensor of this name."""

    name: str


Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class Operation:
    """A call of torch with holes where a network's tensors go, and names where its constants do."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    part: int | None = None
    """Which of several results is meant."""

    def bind(self, tensors: Tensors) -> Callable[..., Any]:
        """The function of what goes into the holes."""

        def fill(tree: Any, inputs: Sequence[Any]) -> Any:
            def one(leaf: Any) -> Any:
                if isinstance(leaf, Hole):
                    return inputs[leaf.number]
                return tensors[leaf.name] if isinstance(leaf, Held) else leaf

            return tree_map(one, tree, is_leaf=lambda leaf: isinstance(leaf, Hole | Held))

        def call(*inputs: Any) -> Any:
            found = self.target(*fill(self.args, inputs), **fill(dict(self.kwargs), inputs))
            return found if self.part is None else found[self.part]

        return call


@dataclass(frozen=True)
class Parameter(Layer):
    """A trained tensor as a value of the network, for operations that compute with it before a layer uses it."""

    name: str

    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def weights(self, tensors: Tensors) -> Weights:
        return tensors[self.name]

    def direction(self, weights: Weights, direction: Gradients) -> Weights:
        return direction.get(self.name)

    def move(self, weights: Weights, direction: Weights, step: float) -> Weights:
        return weights if direction is None else weights + step * direction

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        return weights, None

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        if asked.gradients is not None:
            write_gradient(asked.gradients, self.name, gy.clone())  # others hold gy; the gradient may be written over
        return ()

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        return direction, None

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        if asked.gradients is not None and dgy is not None:
            write_gradient(asked.gradients, self.name, dgy.clone())
        return ()


@dataclass(frozen=True)
class Constant(Layer):
    """A tensor that nothing trains."""

    name: str

    def weights(self, tensors: Tensors) -> Weights:
        return tensors[self.name]

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        return weights, None

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        return ()

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        return None, None

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        return ()


@dataclass(frozen=True)
class LinearOperation(Linearly):
    """An operation that is linear in its one input: pools by average, sums, slices, padding, interpolation."""

    operation: Operation

    def weights(self, tensors: Tensors) -> Weights:
        return self.operation.bind(tensors)

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        if frozen is not None:
            return weights(inputs[0]), frozen
        y, back = with_pullback(weights, inputs[0])
        return y, (weights, back)

    def along(self, memory: Memory, x: Tensor) -> Tensor:
        return memory[0](x)

    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        return memory[1](gy)[0]


@dataclass(frozen=True)
class Undifferentiated(Layer):
    """What has no derivative: comparisons, roundings, what was detached; a switch that a frozen difference holds."""

    operation: Operation
    inputs: int
    switches: ClassVar[bool] = True

    def weights(self, tensors: Tensors) -> Weights:
        return self.operation.bind(tensors)

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        y = weights(*inputs) if frozen is None else frozen
        return y, y

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        return (None,) * self.inputs

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        return None, None

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        return (None,) * self.inputs


@dataclass
class _Graph:
    """What autograd knows of one operation at one point."""

    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    back: Callable[[Tensor], tuple[Tensor, ...]]
    gy: Maybe = None


@dataclass(frozen=True)
class Differentiated(Layer):
    """Any other operation, by autograd on it alone.

    With gx = J^T gy as a function of gy and x, one backward pass of <gx, dx> gives both J dx, its derivative in gy, and
    the derivative of J^T gy along dx, its derivative in x, since second derivatives commute.
    """

    operation: Operation
    smooth: bool

    @property
    def switches(self) -> bool:  # type: ignore[override]
        return not self.smooth

    def weights(self, tensors: Tensors) -> Weights:
        return self.operation.bind(tensors)

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        places = [number for number, x in enumerate(inputs) if x.is_floating_point()]

        def function(*moving: Tensor) -> Tensor:
            filled = list(inputs)
            for number, x in zip(places, moving, strict=True):
                filled[number] = x
            return weights(*filled)

        own = tuple(inputs[number] for number in places)
        y, back = with_pullback(function, *own)
        return y, (places, _Graph(function, own, back))

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        places, graph = at.memory
        graph.gy = gy
        return self._spread(places, graph.back(gy), asked)

    def _spread(self, places: list[int], found: Sequence[Maybe], asked: Asked) -> tuple[Maybe, ...]:
        spread: list[Maybe] = [None] * len(asked.inputs)
        for number, one in zip(places, found, strict=True):
            spread[number] = one if asked.inputs[number] else None
        return tuple(spread)

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        places, graph = at.memory
        moving = [tangents[number] for number in places]
        if graph.gy is None or all(dx is None for dx in moving):
            return None, None

        def back(gy: Tensor, *own: Tensor) -> tuple[Tensor, ...]:
            return vjp(graph.function, *own)[1](gy)

        again = vjp(back, graph.gy, *graph.inputs)[1]
        dy, *turned = again(
            tuple(torch.zeros_like(x) if dx is None else dx for x, dx in zip(graph.inputs, moving, strict=True))
        )
        return dy, tuple(turned)

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        places, graph = at.memory
        found: Sequence[Maybe] = (None,) * len(places) if dgy is None else graph.back(dgy)
        if along.memory is not None:
            found = [turn if one is None else one + turn for one, turn in zip(found, along.memory, strict=True)]
        return self._spread(places, found, asked)
