"""Convolutions and linear layers, with the BatchNorm behind them folded in."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks.matching.engine.layers.base import (
    Asked,
    Gradients,
    Layer,
    LayerPoint,
    Maybe,
    Memory,
    Motion,
    add_maybe,
    write_gradient,
)
from leakgauge.attacks.matching.engine.layers.normalisation import EvalNorm

_aten = torch.ops.aten


@dataclass(frozen=True)
class KernelDirection:
    """How an effective kernel and offset move; None where they do not."""

    kernel: Maybe
    offset: Maybe


@dataclass(frozen=True)
class KernelWeights:
    """An effective kernel and offset, and how they come from the parameters."""

    kernel: Tensor
    offset: Maybe
    scale: Maybe = None  # of each output channel, where it is not in the kernel already
    original: Maybe = None
    factor: Maybe = None  # d kernel / d weight = gamma / sigma
    inverse: Maybe = None  # 1 / sigma
    centred: Maybe = None  # bias - mean


@dataclass(frozen=True)
class Affine(Layer):
    """A layer that multiplies its input with a kernel, and the BatchNorm behind it, if any, folded in.

    With s = gamma / sigma the folded kernel is s w and its offset s (b - mean) + beta. Their gradients give those of
    the parameters back: g_w = s g_kernel, g_beta = g_offset, g_gamma = (<g_kernel, w> + g_offset (b - mean)) / sigma.
    """

    weight: str
    bias: str | None
    norm: EvalNorm | None
    trained: frozenset[str]
    fold_kernel: bool
    needs_cotangent: ClassVar[bool] = True

    @abstractmethod
    def multiply(self, x: Tensor, kernel: Tensor, offset: Maybe) -> Tensor: ...

    @abstractmethod
    def multiply_transposed(self, gy: Tensor, kernel: Tensor, x: Tensor) -> Tensor: ...

    @abstractmethod
    def kernel_gradient(self, gy: Tensor, x: Tensor, kernel: Tensor) -> Tensor: ...

    @abstractmethod
    def sum_outputs(self, gy: Tensor) -> Tensor:
        """Over everything but the output channels."""

    @abstractmethod
    def per_output(self, vector: Tensor) -> Tensor:
        """A vector over output channels, shaped to multiply an output."""

    def names(self) -> tuple[str, ...]:
        norm = () if self.norm is None else self.norm.names()
        return (self.weight, *(() if self.bias is None else (self.bias,)), *norm)

    def weights(self, tensors: Mapping[str, Tensor]) -> KernelWeights:
        kernel, bias = tensors[self.weight], None if self.bias is None else tensors[self.bias]
        if self.norm is None:
            return KernelWeights(kernel, bias)
        factor, inverse = self.norm.scale(tensors)
        centred = -tensors[self.norm.mean] if bias is None else bias - tensors[self.norm.mean]
        offset = factor * centred
        if self.norm.beta is not None:
            offset = offset + tensors[self.norm.beta]
        folded = kernel * _rows(factor, kernel) if self.fold_kernel else kernel
        scale = None if self.fold_kernel else self.per_output(factor)
        return KernelWeights(folded, offset, scale, kernel, factor, inverse, centred)

    def direction(self, weights: KernelWeights, direction: Gradients) -> KernelDirection:
        kernel = direction.get(self.weight)
        offset = None if self.bias is None else direction.get(self.bias)
        if self.norm is None:
            return KernelDirection(kernel, offset)
        assert weights.factor is not None
        assert weights.original is not None
        assert weights.inverse is not None
        assert weights.centred is not None
        kernel = None if kernel is None else kernel.mul_(_rows(weights.factor, kernel))
        moved = None if offset is None else offset * weights.factor
        gamma = None if self.norm.gamma is None else direction.get(self.norm.gamma)
        if gamma is not None:
            relative = gamma * weights.inverse
            rows = _rows(relative, weights.original)
            kernel = weights.original * rows if kernel is None else _add_product(kernel, weights.original, rows)
            moved = add_maybe(moved, relative * weights.centred)
        beta = None if self.norm.beta is None else direction.get(self.norm.beta)
        return KernelDirection(kernel, add_maybe(moved, beta))

    def move(self, weights: KernelWeights, direction: KernelDirection, step: float) -> KernelWeights:
        offset = weights.offset
        if direction.offset is not None:
            offset = step * direction.offset + (0 if offset is None else offset)
        if direction.kernel is None:
            return replace(weights, offset=offset)
        kernel = direction.kernel.mul_(step)
        if weights.scale is None:
            kernel = kernel.add_(weights.kernel)
        else:
            assert weights.factor is not None
            kernel = kernel.addcmul_(weights.kernel, _rows(weights.factor, weights.kernel))
        return KernelWeights(kernel, offset)

    def value(self, weights: KernelWeights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0].contiguous()  # here once, instead of by every kernel that reads it
        if weights.scale is None:
            return self.multiply(x, weights.kernel, weights.offset), x
        assert weights.offset is not None
        y = self.multiply(x, weights.kernel, None).mul_(weights.scale).add_(self.per_output(weights.offset))
        return y, x

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        if asked.gradients is not None:
            self._write(asked.gradients, at.weights, self._raw(at.weights, at.memory, gy))
        return (self._back(at, gy) if asked.inputs[0] else None,)

    def _back(self, at: LayerPoint, gy: Tensor) -> Tensor:
        weights: KernelWeights = at.weights
        scaled = gy if weights.scale is None else gy * weights.scale
        return self.multiply_transposed(scaled, weights.kernel, at.memory)

    def _raw(self, weights: KernelWeights, x: Tensor, gy: Tensor) -> tuple[Maybe, Maybe]:
        """Gradients of the folded kernel and offset."""
        kernel = self.weight in self.trained or (self.norm is not None and self.norm.gamma in self.trained)
        offset = kernel and self.norm is not None
        names = (self.bias, None if self.norm is None else self.norm.beta)
        offset = offset or any(name in self.trained for name in names)
        return (
            self.kernel_gradient(gy, x, weights.kernel) if kernel else None,
            self.sum_outputs(gy) if offset else None,
        )

    def _write(self, gradients: Gradients, weights: KernelWeights, raw: tuple[Maybe, Maybe]) -> None:
        kernel, offset = raw
        if self.norm is None:
            found = {self.weight: kernel, self.bias: offset}
        else:
            assert weights.factor is not None
            assert weights.inverse is not None
            found = {self.norm.beta: offset}
            if self.norm.gamma in self.trained:
                assert kernel is not None
                assert offset is not None
                assert weights.original is not None
                assert weights.centred is not None
                rows = _row_products(kernel, weights.original)
                found[self.norm.gamma] = (rows + offset * weights.centred) * weights.inverse
            if self.bias in self.trained and offset is not None:
                found[self.bias] = offset * weights.factor
            if self.weight in self.trained and kernel is not None:
                found[self.weight] = kernel.mul_(_rows(weights.factor, kernel))
        for name, gradient in found.items():
            if name is not None and name in self.trained and gradient is not None:
                write_gradient(gradients, name, gradient)

    def tangent(self, at: LayerPoint, direction: KernelDirection, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        weights: KernelWeights = at.weights
        dx = tangents[0]
        dy = None if direction.kernel is None else self.multiply(at.memory, direction.kernel, direction.offset)
        if dx is not None:
            through = self.multiply(dx, weights.kernel, None)
            if dy is None:
                dy = through if weights.scale is None else through.mul_(weights.scale)
            else:
                dy = dy.add_(through) if weights.scale is None else _add_product(dy, through, weights.scale)
        if direction.kernel is None and direction.offset is not None:
            shape = self.per_output(direction.offset)
            dy = shape.expand(self.multiply(at.memory, weights.kernel, None).shape) if dy is None else dy.add_(shape)
        return dy, dx

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        if asked.gradients is not None and gy is not None:
            self._write(asked.gradients, at.weights, self._raw_tangent(at, along, gy, dgy))
        if not asked.inputs[0]:
            return (None,)
        through = None if dgy is None else self._back(at, dgy)
        if gy is None or along.direction.kernel is None:
            return (through,)
        dgx = self.multiply_transposed(gy, along.direction.kernel, at.memory)
        return (dgx if through is None else dgx.add_(through),)

    def _raw_tangent(self, at: LayerPoint, along: Motion, gy: Tensor, dgy: Maybe) -> tuple[Maybe, Maybe]:
        if self.norm is not None:
            raise NotImplementedError("second derivatives in the parameters are taken on the unfolded network")
        pairs = ((along.memory, gy), (at.memory, dgy))
        parts = [self._raw(at.weights, x, g) for x, g in pairs if not (x is None or g is None)]
        kernels = [kernel for kernel, _ in parts if kernel is not None]
        # The offset's gradient is linear in the cotangent alone.
        return sum(kernels[1:], kernels[0]) if kernels else None, None if dgy is None else self.sum_outputs(dgy)


@dataclass(frozen=True)
class Linear(Affine):
    """The fully connected layer, on vectors or on rows of them."""

    def multiply(self, x: Tensor, kernel: Tensor, offset: Maybe) -> Tensor:
        return torch.nn.functional.linear(x, kernel, offset)

    def multiply_transposed(self, gy: Tensor, kernel: Tensor, x: Tensor) -> Tensor:
        return gy @ kernel

    def kernel_gradient(self, gy: Tensor, x: Tensor, kernel: Tensor) -> Tensor:
        return gy.flatten(0, -2).mT @ x.flatten(0, -2)

    def sum_outputs(self, gy: Tensor) -> Tensor:
        return gy.flatten(0, -2).sum(dim=0)

    def per_output(self, vector: Tensor) -> Tensor:
        return vector


@dataclass(frozen=True)
class Convolution(Affine):
    """Of any dimension; padding other than by zeros is a layer of its own."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: tuple[int, ...] | None = None
    """Of a transposed convolution, what is added to the size of its output."""

    def multiply(self, x: Tensor, kernel: Tensor, offset: Maybe) -> Tensor:
        return _aten.convolution(x, kernel, offset, *self._geometry())

    def _geometry(self) -> tuple[object, ...]:
        extra = [0] * len(self.stride) if self.transposed is None else self.transposed
        return self.stride, self.padding, self.dilation, self.transposed is not None, extra, self.groups

    def multiply_transposed(self, gy: Tensor, kernel: Tensor, x: Tensor) -> Tensor:
        return self._backward(gy, x, kernel, [True, False, False])[0]

    def kernel_gradient(self, gy: Tensor, x: Tensor, kernel: Tensor) -> Tensor:
        return self._backward(gy, x, kernel, [False, True, False])[1]

    def _backward(self, gy: Tensor, x: Tensor, kernel: Tensor, mask: list[bool]) -> tuple[Tensor, ...]:
        return _aten.convolution_backward(gy, x, kernel, None, *self._geometry(), mask)

    def sum_outputs(self, gy: Tensor) -> Tensor:
        return gy.sum(dim=[0, *range(2, gy.ndim)])

    def per_output(self, vector: Tensor) -> Tensor:
        return vector.view(-1, *[1] * len(self.stride))


def _add_product(target: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """target + left * right, written over ``target``."""
    if torch._C._functorch.is_batchedtensor(target):
        return target.add_(left * right)  # vmap has no rule for addcmul_ and would take the rows one by one
    return target.addcmul_(left, right)


def _rows(vector: Tensor, kernel: Tensor) -> Tensor:
    return vector.view(-1, *[1] * (kernel.ndim - 1))


def _row_products(left: Tensor, right: Tensor) -> Tensor:
    """<left_o, right_o> for each output channel o, without a temporary of the kernel's size."""
    return torch.bmm(left.flatten(1)[:, None, :], right.flatten(1)[:, :, None]).flatten()
