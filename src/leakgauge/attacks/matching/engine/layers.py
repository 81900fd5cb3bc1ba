"""What each kind of layer does in the four sweeps of the tangent route.

For a layer y = f(x, w) and a loss L, with gx, gy, gw its derivatives in x, y and w, the sweeps are

    value        y  = f(x, w)
    cotangent    gx = (df/dx)^T gy,  gw = (df/dw)^T gy
    tangent      dy = df/dx dx + df/dw dw,  along dx of the input and dw of the parameters
    curvature    dgx, dgw: the derivative of the cotangent sweep along dx, dw and dgy

``None`` stands for a tangent that is zero. The first return of ``value`` and ``tangent`` is the result, the second what
later sweeps need to remember. Given ``frozen``, the memory of an earlier sweep, the value sweep reuses its switches
(which ReLU is open, which pixel a pool chose): the difference of two such sweeps is free of the jumps that make plain
differences useless on ReLU networks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.func import vjp

Memory = Any
Weights = Any
Maybe = Tensor | None
Gradients = dict[str, Tensor]
Wanted = Sequence[bool]

_aten = torch.ops.aten


class Layer(ABC):
    """One step of a network, from one or more inputs to one output."""

    needs_cotangent: ClassVar[bool] = False
    """Whether ``curvature`` reads the cotangent of the output."""

    def weights(self, tensors: Mapping[str, Tensor]) -> Weights:
        """What the sweeps use of the parameters and buffers; taken once for one set of them."""
        return None

    def direction(self, weights: Weights, direction: Gradients) -> Weights:
        """A direction in the parameters as one in ``weights``; may use up the tensors it is given."""
        return None

    def moved(self, weights: Weights, direction: Weights, step: float) -> Weights:
        """``weights + step * direction``; may use up the direction."""
        return weights

    @abstractmethod
    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]: ...

    @abstractmethod
    def cotangent(
        self, weights: Weights, memory: Memory, gy: Tensor, wanted: Wanted, gradients: Gradients | None
    ) -> tuple[Maybe, ...]:
        """Cotangents of the wanted inputs; the parameters' gradients go into ``gradients``, if given."""

    @abstractmethod
    def tangent(
        self, weights: Weights, memory: Memory, direction: Weights, tangents: Sequence[Maybe]
    ) -> tuple[Maybe, Memory]: ...

    @abstractmethod
    def curvature(
        self,
        weights: Weights,
        memory: Memory,
        direction: Weights,
        tangent_memory: Memory,
        gy: Maybe,
        dgy: Maybe,
        wanted: Wanted,
        gradients: Gradients | None,
    ) -> tuple[Maybe, ...]:
        """Tangents of what ``cotangent`` returned and wrote."""


@dataclass(frozen=True)
class EvalNorm:
    """BatchNorm with running statistics, gamma (y - mean) / sqrt(variance + eps) + beta; names of its tensors."""

    gamma: str | None
    beta: str | None
    mean: str
    variance: str
    eps: float

    def scale(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """gamma / sigma and 1 / sigma."""
        inverse = (tensors[self.variance] + self.eps).rsqrt()
        return (inverse if self.gamma is None else tensors[self.gamma] * inverse), inverse


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

    def direction(self, weights: KernelWeights, direction: Gradients) -> KernelWeights:
        kernel = direction.get(self.weight)
        offset = None if self.bias is None else direction.get(self.bias)
        if self.norm is None:
            return KernelWeights(kernel if kernel is not None else torch.zeros_like(weights.kernel), offset)
        assert weights.factor is not None
        assert weights.original is not None
        assert weights.inverse is not None
        assert weights.centred is not None
        kernel = None if kernel is None else kernel.mul_(_rows(weights.factor, kernel))
        moved = torch.zeros_like(weights.factor) if offset is None else offset * weights.factor
        gamma = None if self.norm.gamma is None else direction.get(self.norm.gamma)
        if gamma is not None:
            relative = gamma * weights.inverse
            rows = _rows(relative, weights.original)
            kernel = weights.original * rows if kernel is None else _add_product(kernel, weights.original, rows)
            moved = moved + relative * weights.centred
        if kernel is None:
            kernel = torch.zeros_like(weights.original)
        beta = None if self.norm.beta is None else direction.get(self.norm.beta)
        return KernelWeights(kernel, moved if beta is None else moved + beta)

    def moved(self, weights: KernelWeights, direction: KernelWeights, step: float) -> KernelWeights:
        kernel = direction.kernel.mul_(step)
        if weights.scale is None:
            kernel = kernel.add_(weights.kernel)
        else:
            assert weights.factor is not None
            kernel = kernel.addcmul_(weights.kernel, _rows(weights.factor, weights.kernel))
        offset = weights.offset
        if direction.offset is not None:
            offset = step * direction.offset + (0 if offset is None else offset)
        return KernelWeights(kernel, offset)

    def value(self, weights: KernelWeights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        if weights.scale is None:
            return self.multiply(x, weights.kernel, weights.offset), x
        assert weights.offset is not None
        y = self.multiply(x, weights.kernel, None).mul_(weights.scale).add_(self.per_output(weights.offset))
        return y, x

    def cotangent(
        self, weights: KernelWeights, memory: Tensor, gy: Tensor, wanted: Wanted, gradients: Gradients | None
    ) -> tuple[Maybe, ...]:
        if gradients is not None:
            self._gradients(weights, self._raw(weights, memory, gy), gradients)
        return (self._back(weights, gy, memory) if wanted[0] else None,)

    def _back(self, weights: KernelWeights, gy: Tensor, x: Tensor) -> Tensor:
        scaled = gy if weights.scale is None else gy * weights.scale
        return self.multiply_transposed(scaled, weights.kernel, x)

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

    def _gradients(self, weights: KernelWeights, raw: tuple[Maybe, Maybe], gradients: Gradients) -> None:
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
                gradients[name] = gradient

    def tangent(
        self, weights: KernelWeights, memory: Tensor, direction: KernelWeights, tangents: Sequence[Maybe]
    ) -> tuple[Maybe, Memory]:
        dy = self.multiply(memory, direction.kernel, direction.offset)
        dx = tangents[0]
        if dx is not None:
            through = self.multiply(dx, weights.kernel, None)
            dy = dy.add_(through) if weights.scale is None else _add_product(dy, through, weights.scale)
        return dy, dx

    def curvature(
        self,
        weights: KernelWeights,
        memory: Tensor,
        direction: KernelWeights,
        tangent_memory: Maybe,
        gy: Maybe,
        dgy: Maybe,
        wanted: Wanted,
        gradients: Gradients | None,
    ) -> tuple[Maybe, ...]:
        assert gy is not None
        if gradients is not None:
            if self.norm is not None:
                raise NotImplementedError("second derivatives in the parameters are taken on the unfolded network")
            parts = [
                self._raw(weights, x, g)
                for x, g in ((tangent_memory, gy), (memory, dgy))
                if not (x is None or g is None)
            ]
            # The offset's gradient is linear in the cotangent alone.
            kernels = [kernel for kernel, _ in parts if kernel is not None]
            kernel = sum(kernels[1:], kernels[0]) if kernels else None
            offset = None if dgy is None else self.sum_outputs(dgy)
            self._gradients(weights, (kernel, offset), gradients)
        if not wanted[0]:
            return (None,)
        dgx = self.multiply_transposed(gy, direction.kernel, memory)
        return (dgx if dgy is None else dgx.add_(self._back(weights, dgy, memory)),)


@dataclass(frozen=True)
class Convolution(Affine):
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def multiply(self, x: Tensor, kernel: Tensor, offset: Maybe) -> Tensor:
        zeros = [0] * len(self.stride)
        return _aten.convolution(x, kernel, offset, self.stride, self.padding, self.dilation, False, zeros, self.groups)

    def multiply_transposed(self, gy: Tensor, kernel: Tensor, x: Tensor) -> Tensor:
        return self._backward(gy, x, kernel, [True, False, False])[0]

    def kernel_gradient(self, gy: Tensor, x: Tensor, kernel: Tensor) -> Tensor:
        return self._backward(gy, x, kernel, [False, True, False])[1]

    def _backward(self, gy: Tensor, x: Tensor, kernel: Tensor, mask: list[bool]) -> tuple[Tensor, ...]:
        zeros = [0] * len(self.stride)
        return _aten.convolution_backward(
            gy, x, kernel, None, self.stride, self.padding, self.dilation, False, zeros, self.groups, mask
        )

    def sum_outputs(self, gy: Tensor) -> Tensor:
        return gy.sum(dim=[0, *range(2, gy.ndim)])

    def per_output(self, vector: Tensor) -> Tensor:
        return vector.view(-1, *[1] * len(self.stride))


@dataclass(frozen=True)
class Linear(Affine):
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
class Normalised(Layer):
    """gamma x_hat + beta with x_hat = (x - mean) / sqrt(variance + eps) over groups of entries of the input itself.

    BatchNorm in train mode, GroupNorm, LayerNorm and InstanceNorm differ by ``grouped``, which brings the input into
    the shape (groups..., entries) whose last axis is averaged over, and ``ungrouped``, which brings it back.
    """

    gamma: str | None
    beta: str | None
    eps: float
    grouped: Callable[[Tensor], Tensor]
    ungrouped: Callable[[Tensor, Tensor], Tensor]
    broadcast: Callable[[Tensor, Tensor], Tensor]
    reduce: Callable[[Tensor], Tensor]
    trained: frozenset[str]
    needs_cotangent: ClassVar[bool] = True

    def weights(self, tensors: Mapping[str, Tensor]) -> Weights:
        return tuple(None if name is None else tensors[name] for name in (self.gamma, self.beta))

    def direction(self, weights: Weights, direction: Gradients) -> Weights:
        return tuple(None if name is None else direction.get(name) for name in (self.gamma, self.beta))

    def moved(self, weights: Weights, direction: Weights, step: float) -> Weights:
        return tuple(w if d is None else w + step * d for w, d in zip(weights, direction))

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        groups = self.grouped(x)
        centred = groups - groups.mean(dim=-1, keepdim=True)
        inverse = (centred.square().mean(dim=-1, keepdim=True) + self.eps).rsqrt()
        hat = self.ungrouped(centred * inverse, x)
        return self._affine(hat, *weights), (hat, inverse)

    def _affine(self, hat: Tensor, gamma: Maybe, beta: Maybe) -> Tensor:
        y = hat if gamma is None else hat * self.broadcast(gamma, hat)
        return y if beta is None else y + self.broadcast(beta, hat)

    def _project(self, groups: Tensor, hat: Tensor) -> Tensor:
        """What is left of a change of x when mean and variance are held: (1 - 1 1^T - x_hat x_hat^T) over a group."""
        return groups - groups.mean(dim=-1, keepdim=True) - hat * (groups * hat).mean(dim=-1, keepdim=True)

    def cotangent(
        self, weights: Weights, memory: Memory, gy: Tensor, wanted: Wanted, gradients: Gradients | None
    ) -> tuple[Maybe, ...]:
        hat, inverse = memory
        if gradients is not None:
            self._write(gradients, gy * hat, gy)
        if not wanted[0]:
            return (None,)
        gh = gy if weights[0] is None else gy * self.broadcast(weights[0], gy)
        return (self.ungrouped(inverse * self._project(self.grouped(gh), self.grouped(hat)), gy),)

    def _write(self, gradients: Gradients, for_gamma: Tensor, for_beta: Tensor) -> None:
        if self.gamma is not None and self.gamma in self.trained:
            gradients[self.gamma] = self.reduce(for_gamma)
        if self.beta is not None and self.beta in self.trained:
            gradients[self.beta] = self.reduce(for_beta)

    def tangent(
        self, weights: Weights, memory: Memory, direction: Weights, tangents: Sequence[Maybe]
    ) -> tuple[Maybe, Memory]:
        hat, inverse = memory
        dx = tangents[0]
        dhat = dy = None
        if dx is not None:
            dhat = self.ungrouped(inverse * self._project(self.grouped(dx), self.grouped(hat)), hat)
            dy = dhat if weights[0] is None else dhat * self.broadcast(weights[0], hat)
        if direction[0] is not None or direction[1] is not None:
            zero = torch.zeros_like(hat) if direction[0] is None else hat * self.broadcast(direction[0], hat)
            moved = zero if direction[1] is None else zero + self.broadcast(direction[1], hat)
            dy = moved if dy is None else dy + moved
        return dy, (dx, dhat)

    def curvature(
        self,
        weights: Weights,
        memory: Memory,
        direction: Weights,
        tangent_memory: Memory,
        gy: Maybe,
        dgy: Maybe,
        wanted: Wanted,
        gradients: Gradients | None,
    ) -> tuple[Maybe, ...]:
        assert gy is not None
        (hat, inverse), (dx, dhat) = memory, tangent_memory
        dgy = torch.zeros_like(gy) if dgy is None else dgy
        if gradients is not None:
            self._write(gradients, dgy * hat if dhat is None else dgy * hat + gy * dhat, dgy)
        if not wanted[0]:
            return (None,)
        gh, dgh = gy, dgy
        if weights[0] is not None:
            gamma = self.broadcast(weights[0], gy)
            gh, dgh = gy * gamma, dgy * gamma
        if direction[0] is not None:
            dgh = dgh + gy * self.broadcast(direction[0], gy)
        hats, ghs, dghs = self.grouped(hat), self.grouped(gh), self.grouped(dgh)
        result = inverse * self._project(dghs, hats)
        if dx is not None:
            assert dhat is not None
            dhats = self.grouped(dhat)
            projected = inverse * self._project(ghs, hats)
            # d(1/sigma) = -(1/sigma)^2 mean(x_hat dx)
            shrink = inverse * (hats * self.grouped(dx)).mean(dim=-1, keepdim=True)
            turn = dhats * (ghs * hats).mean(dim=-1, keepdim=True) + hats * (ghs * dhats).mean(dim=-1, keepdim=True)
            result = result - shrink * projected - inverse * turn
        return (self.ungrouped(result, gy),)


@dataclass(frozen=True)
class ChannelAffine(Layer):
    """BatchNorm with running statistics where it cannot be folded: s (x - mean) + beta, s = gamma / sigma."""

    norm: EvalNorm
    trained: frozenset[str]
    needs_cotangent: ClassVar[bool] = True

    def weights(self, tensors: Mapping[str, Tensor]) -> Weights:
        factor, inverse = self.norm.scale(tensors)
        beta = None if self.norm.beta is None else tensors[self.norm.beta]
        return factor, beta, tensors[self.norm.mean], inverse

    def direction(self, weights: Weights, direction: Gradients) -> Weights:
        gamma = None if self.norm.gamma is None else direction.get(self.norm.gamma)
        beta = None if self.norm.beta is None else direction.get(self.norm.beta)
        return None if gamma is None else gamma * weights[3], beta

    def moved(self, weights: Weights, direction: Weights, step: float) -> Weights:
        factor, beta, mean, inverse = weights
        factor = factor if direction[0] is None else factor + step * direction[0]
        return factor, beta if direction[1] is None else beta + step * direction[1], mean, inverse

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        factor, beta, mean, _ = weights
        offset = -mean * factor if beta is None else beta - mean * factor
        return x * _channels(factor, x) + _channels(offset, x), x

    def cotangent(
        self, weights: Weights, memory: Tensor, gy: Tensor, wanted: Wanted, gradients: Gradients | None
    ) -> tuple[Maybe, ...]:
        if gradients is not None:
            self._write(gradients, _over_channels(gy * self._hat(weights, memory)), _over_channels(gy))
        return (gy * _channels(weights[0], gy) if wanted[0] else None,)

    def _hat(self, weights: Weights, x: Tensor) -> Tensor:
        return (x - _channels(weights[2], x)) * _channels(weights[3], x)

    def _write(self, gradients: Gradients, gamma: Tensor, beta: Tensor) -> None:
        if self.norm.gamma is not None and self.norm.gamma in self.trained:
            gradients[self.norm.gamma] = gamma
        if self.norm.beta is not None and self.norm.beta in self.trained:
            gradients[self.norm.beta] = beta

    def tangent(
        self, weights: Weights, memory: Tensor, direction: Weights, tangents: Sequence[Maybe]
    ) -> tuple[Maybe, Memory]:
        dx = tangents[0]
        dy = None if dx is None else dx * _channels(weights[0], dx)
        if direction[0] is not None:
            moved = (memory - _channels(weights[2], memory)) * _channels(direction[0], memory)
            dy = moved if dy is None else dy + moved
        if direction[1] is not None:
            beta = _channels(direction[1], memory)
            dy = beta.expand(memory.shape) if dy is None else dy + beta
        return dy, dx

    def curvature(
        self,
        weights: Weights,
        memory: Tensor,
        direction: Weights,
        tangent_memory: Maybe,
        gy: Maybe,
        dgy: Maybe,
        wanted: Wanted,
        gradients: Gradients | None,
    ) -> tuple[Maybe, ...]:
        assert gy is not None
        dx = tangent_memory
        dgy = torch.zeros_like(gy) if dgy is None else dgy
        if gradients is not None:
            gamma = dgy * self._hat(weights, memory)
            if dx is not None:
                gamma = gamma + gy * dx * _channels(weights[3], gy)
            self._write(gradients, _over_channels(gamma), _over_channels(dgy))
        if not wanted[0]:
            return (None,)
        dgx = dgy * _channels(weights[0], dgy)
        return (dgx if direction[0] is None else dgx + gy * _channels(direction[0], gy),)


class Linearly(Layer):
    """What layers share that are linear in their input while their switches stand: curvature is cotangent."""

    @abstractmethod
    def along(self, memory: Memory, x: Tensor) -> Tensor:
        """The linear map itself."""

    @abstractmethod
    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        """Its transpose."""

    def cotangent(
        self, weights: Weights, memory: Memory, gy: Tensor, wanted: Wanted, gradients: Gradients | None
    ) -> tuple[Maybe, ...]:
        return (self.back(memory, gy) if wanted[0] else None,)

    def tangent(
        self, weights: Weights, memory: Memory, direction: Weights, tangents: Sequence[Maybe]
    ) -> tuple[Maybe, Memory]:
        return None if tangents[0] is None else self.along(memory, tangents[0]), None

    def curvature(
        self,
        weights: Weights,
        memory: Memory,
        direction: Weights,
        tangent_memory: Memory,
        gy: Maybe,
        dgy: Maybe,
        wanted: Wanted,
        gradients: Gradients | None,
    ) -> tuple[Maybe, ...]:
        return (None if dgy is None or not wanted[0] else self.back(memory, dgy),)


@dataclass(frozen=True)
class Rectifier(Linearly):
    """ReLU and, with a slope below zero, LeakyReLU; the sign of the output tells which side it is on."""

    slope: float = 0.0
    overwrite: bool = False
    """Nobody else reads the input, so the output may take its place."""

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        if frozen is not None:
            return self.along(frozen, x), frozen
        if self.slope == 0:
            y = x.relu_() if self.overwrite else x.relu()
        else:
            y = torch.nn.functional.leaky_relu(x, self.slope)
        return y, y

    def along(self, memory: Tensor, x: Tensor) -> Tensor:
        if self.slope == 0:
            return _aten.threshold_backward(x, memory, 0)
        return _aten.leaky_relu_backward(x, memory, self.slope, True)

    def back(self, memory: Tensor, gy: Tensor) -> Tensor:
        return self.along(memory, gy)


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

    def cotangent(
        self, weights: Weights, memory: Memory, gy: Tensor, wanted: Wanted, gradients: Gradients | None
    ) -> tuple[Maybe, ...]:
        return (memory[0] * gy if wanted[0] else None,)

    def tangent(
        self, weights: Weights, memory: Memory, direction: Weights, tangents: Sequence[Maybe]
    ) -> tuple[Maybe, Memory]:
        dx = tangents[0]
        return (None, None) if dx is None else (memory[0] * dx, memory[1] * dx)

    def curvature(
        self,
        weights: Weights,
        memory: Memory,
        direction: Weights,
        tangent_memory: Maybe,
        gy: Maybe,
        dgy: Maybe,
        wanted: Wanted,
        gradients: Gradients | None,
    ) -> tuple[Maybe, ...]:
        if not wanted[0]:
            return (None,)
        dgx = None if dgy is None else memory[0] * dgy
        if tangent_memory is None:
            return (dgx,)
        assert gy is not None
        bend = tangent_memory * gy
        return (bend if dgx is None else dgx + bend,)


@dataclass(frozen=True)
class MaxPool(Linearly):
    """Each window passes on its largest entry; the positions are the switches."""

    pool: Callable[[Tensor], tuple[Tensor, Tensor]]
    spatial: int

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


@dataclass(frozen=True)
class LinearMap(Linearly):
    """Any map without parameters that is linear up to a constant: average pools, padding, views, dropout in eval."""

    function: Callable[[Tensor], Tensor]
    constant: bool = False

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        if frozen is not None:
            return self.function(inputs[0]), frozen
        y, back = vjp(self.function, inputs[0])[:2]
        return y, back

    def along(self, memory: Memory, x: Tensor) -> Tensor:
        y = self.function(x)
        return y - self.function(torch.zeros_like(x)) if self.constant else y

    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        return memory(gy)[0]


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
class Passed(Linearly):
    """The input itself."""

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        return inputs[0], None

    def along(self, memory: Memory, x: Tensor) -> Tensor:
        return x

    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        return gy


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

    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        return self.along(memory, gy)


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

    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        return self.along(memory, gy)


@dataclass(frozen=True)
class Added(Layer):
    """The sum of two inputs of one shape."""

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        return inputs[0] + inputs[1], None

    def cotangent(
        self, weights: Weights, memory: Memory, gy: Tensor, wanted: Wanted, gradients: Gradients | None
    ) -> tuple[Maybe, ...]:
        return tuple(gy if want else None for want in wanted)

    def tangent(
        self, weights: Weights, memory: Memory, direction: Weights, tangents: Sequence[Maybe]
    ) -> tuple[Maybe, Memory]:
        return add(*tangents), None

    def curvature(
        self,
        weights: Weights,
        memory: Memory,
        direction: Weights,
        tangent_memory: Memory,
        gy: Maybe,
        dgy: Maybe,
        wanted: Wanted,
        gradients: Gradients | None,
    ) -> tuple[Maybe, ...]:
        return tuple(dgy if want else None for want in wanted)


@dataclass(frozen=True)
class Joined(Layer):
    """Inputs side by side along one axis."""

    axis: int

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        return torch.cat(tuple(inputs), self.axis), [x.shape for x in inputs]

    def cotangent(
        self, weights: Weights, memory: Memory, gy: Tensor, wanted: Wanted, gradients: Gradients | None
    ) -> tuple[Maybe, ...]:
        parts = gy.split([shape[self.axis] for shape in memory], self.axis)
        return tuple(part if want else None for part, want in zip(parts, wanted))

    def tangent(
        self, weights: Weights, memory: Memory, direction: Weights, tangents: Sequence[Maybe]
    ) -> tuple[Maybe, Memory]:
        present = next((tangent for tangent in tangents if tangent is not None), None)
        if present is None:
            return None, None
        filled = [present.new_zeros(s) if t is None else t for t, s in zip(tangents, memory)]
        return torch.cat(filled, self.axis), None

    def curvature(
        self,
        weights: Weights,
        memory: Memory,
        direction: Weights,
        tangent_memory: Memory,
        gy: Maybe,
        dgy: Maybe,
        wanted: Wanted,
        gradients: Gradients | None,
    ) -> tuple[Maybe, ...]:
        if dgy is None:
            return (None,) * len(wanted)
        return self.cotangent(weights, memory, dgy, wanted, None)


def add(left: Maybe, right: Maybe) -> Maybe:
    """The sum, where ``None`` is zero."""
    if left is None or right is None:
        return right if left is None else left
    return left + right


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


def _channels(vector: Tensor, like: Tensor) -> Tensor:
    return vector.view(-1, *[1] * (like.ndim - 2))


def _over_channels(tensor: Tensor) -> Tensor:
    return tensor.sum(dim=[axis for axis in range(tensor.ndim) if axis != 1])
