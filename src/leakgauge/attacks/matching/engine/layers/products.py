"""Sums with broadcasting, and products of two tensors of the network."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.func import vjp

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
from leakgauge.attacks.matching.engine.layers.operations import Operation, Tensors


@dataclass(frozen=True)
class Combined(Layer):
    """left * a + right * b, where either may be repeated along an axis."""

    left: float
    right: float

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        a, b = inputs
        return _scaled(a, self.left) + _scaled(b, self.right), (a.shape, b.shape)

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        pairs = zip((self.left, self.right), at.memory, asked.inputs)
        return tuple(sum_to(_scaled(gy, factor), shape) if want else None for factor, shape, want in pairs)

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        a, b = (None if t is None else _scaled(t, factor) for t, factor in zip(tangents, (self.left, self.right)))
        if a is None and b is None:
            return None, None
        dy = add_maybe(a, b)
        assert dy is not None
        return dy.expand(_broadcast(*at.memory)), None

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        return (None, None) if dgy is None else self.cotangent(at, dgy, asked)


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else -x if factor == -1 else factor * x


def _broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    axes = max(map(len, shapes))
    padded = [(1,) * (axes - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(max(sizes) if 0 not in sizes else 0 for sizes in zip(*padded))


def sum_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Summed over what broadcasting to the shape of ``x`` repeats."""
    if tuple(x.shape) == tuple(shape):
        return x
    lead = x.ndim - len(shape)
    axes = [*range(lead), *(lead + axis for axis, size in enumerate(shape) if size == 1 and x.shape[lead + axis] != 1)]
    return x.sum(dim=axes, keepdim=True).reshape(tuple(shape)) if axes else x


class Bilinear(Layer):
    """What layers share that are linear in each of two inputs: y = f(a, b)."""

    needs_cotangent: ClassVar[bool] = True

    @abstractmethod
    def multiply(self, weights: Weights, a: Tensor, b: Tensor) -> Tensor: ...

    def back_left(self, weights: Weights, gy: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """The transpose of f(., b), into the shape of ``a``."""
        return vjp(lambda left: self.multiply(weights, left, b), a)[1](gy)[0]

    def back_right(self, weights: Weights, gy: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """The transpose of f(a, .), into the shape of ``b``."""
        return vjp(lambda right: self.multiply(weights, a, right), b)[1](gy)[0]

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        a, b = inputs
        return self.multiply(weights, a, b), (a, b)

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        a, b = at.memory
        return (
            self.back_left(at.weights, gy, a, b) if asked.inputs[0] else None,
            self.back_right(at.weights, gy, a, b) if asked.inputs[1] else None,
        )

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        a, b = at.memory
        da, db = tangents
        left = None if da is None else self.multiply(at.weights, da, b)
        return add_maybe(left, None if db is None else self.multiply(at.weights, a, db)), (da, db)

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        (a, b), (da, db) = at.memory, along.memory
        dga = dgb = None
        if asked.inputs[0]:
            dga = None if dgy is None else self.back_left(at.weights, dgy, a, b)
            if db is not None and gy is not None:
                dga = add_maybe(dga, self.back_left(at.weights, gy, a, db))
        if asked.inputs[1]:
            dgb = None if dgy is None else self.back_right(at.weights, dgy, a, b)
            if da is not None and gy is not None:
                dgb = add_maybe(dgb, self.back_right(at.weights, gy, da, b))
        return dga, dgb


@dataclass(frozen=True)
class BilinearOperation(Bilinear):
    """Any operation that is linear in each of two inputs, its transposes by autograd."""

    operation: Operation

    def weights(self, tensors: Tensors) -> Weights:
        return self.operation.bind(tensors)

    def multiply(self, weights: Callable[..., Tensor], a: Tensor, b: Tensor) -> Tensor:
        return weights(a, b)


@dataclass(frozen=True)
class Product(Bilinear):
    """Entry by entry, where either may be repeated along an axis: gates, squeeze and excitation."""

    def multiply(self, weights: Weights, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def back_left(self, weights: Weights, gy: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return sum_to(gy * b, a.shape)

    def back_right(self, weights: Weights, gy: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return sum_to(gy * a, b.shape)


@dataclass(frozen=True)
class MatrixProduct(Bilinear):
    """a @ b of matrices, or stacks of them."""

    def multiply(self, weights: Weights, a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def back_left(self, weights: Weights, gy: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return sum_to(gy @ b.mT, a.shape)

    def back_right(self, weights: Weights, gy: Tensor, a: Tensor, b: Tensor) -> Tensor:
        if b.ndim == 2 and a.ndim > 2:
            return a.flatten(0, -2).mT @ gy.flatten(0, -2)
        return sum_to(a.mT @ gy, b.shape)
