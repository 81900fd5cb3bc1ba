"""Normalisation by the input's own statistics: LayerNorm, GroupNorm, InstanceNorm, RMSNorm, BatchNorm in train mode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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
    Weights,
    add_maybe,
    on_channels,
    sum_channels,
    write_gradient,
)

_aten = torch.ops.aten
_INPUT = [True, False, False]


class Standard(NamedTuple):
    """An input with its mean and 1 / sqrt(variance + eps) over each group, as torch's kernels keep them."""

    x: Tensor
    mean: Tensor
    inverse: Tensor


class Statistics(ABC):
    """Over which entries a layer normalises, and how its parameters lie on the input; by torch's own kernels.

    With x_hat the normalised input, the transpose of d x_hat / dx is that map itself: one kernel serves both.
    """

    @abstractmethod
    def normalise(self, x: Tensor, gamma: Maybe, beta: Maybe, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """gamma x_hat + beta, mean and inverse."""

    @abstractmethod
    def back(self, gy: Tensor, at: Standard, gamma: Maybe, mask: list[bool]) -> tuple[Maybe, Maybe, Maybe]:
        """(d x_hat / dx)^T (gamma gy), and the sums for gamma and beta, where the mask asks for them."""

    @abstractmethod
    def grouped(self, x: Tensor) -> Tensor:
        """The input in a shape in which a group is all of some axes."""

    @abstractmethod
    def average(self, groups: Tensor) -> Tensor:
        """Over each group, in a shape that multiplies the grouped input."""

    @abstractmethod
    def on_groups(self, inverse: Tensor, groups: Tensor) -> Tensor:
        """A number for each group, shaped to multiply the grouped input."""

    def broadcast(self, vector: Tensor, like: Tensor) -> Tensor:
        """A parameter, shaped to multiply an input."""
        return on_channels(vector, like)

    def reduce(self, tensor: Tensor) -> Tensor:
        """The sum over all that ``broadcast`` repeats."""
        return sum_channels(tensor)


@dataclass(frozen=True)
class LastAxes(Statistics, ABC):
    """The last so many axes, each entry with parameters of its own."""

    axes: int

    def grouped(self, x: Tensor) -> Tensor:
        return x.flatten(-self.axes)

    def average(self, groups: Tensor) -> Tensor:
        return groups.mean(-1, keepdim=True)

    def on_groups(self, inverse: Tensor, groups: Tensor) -> Tensor:
        return inverse.flatten(-self.axes)

    def broadcast(self, vector: Tensor, like: Tensor) -> Tensor:
        return vector

    def reduce(self, tensor: Tensor) -> Tensor:
        return tensor.flatten(0, -self.axes - 1).sum(0)


@dataclass(frozen=True)
class OverLastAxes(LastAxes):
    """LayerNorm."""

    def normalise(self, x: Tensor, gamma: Maybe, beta: Maybe, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        return _aten.native_layer_norm(x, x.shape[-self.axes :], gamma, beta, eps)

    def back(self, gy: Tensor, at: Standard, gamma: Maybe, mask: list[bool]) -> tuple[Maybe, Maybe, Maybe]:
        shape = at.x.shape[-self.axes :]
        return _aten.native_layer_norm_backward(gy, at.x, shape, at.mean, at.inverse, gamma, gamma, mask)


@dataclass(frozen=True)
class RootMeanSquare(LastAxes):
    """RMSNorm: the mean counts as 0."""

    def normalise(self, x: Tensor, gamma: Maybe, beta: Maybe, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        axes = tuple(range(-self.axes, 0))
        inverse = x.square().mean(axes, keepdim=True).add_(eps).rsqrt_()
        y = x * inverse
        y = y if gamma is None else y.mul_(gamma)
        return y if beta is None else y.add_(beta), inverse, inverse

    def back(self, gy: Tensor, at: Standard, gamma: Maybe, mask: list[bool]) -> tuple[Maybe, Maybe, Maybe]:
        hat = at.x * at.inverse
        gx = of_gamma = None
        if mask[0]:
            gh = gy if gamma is None else gy * gamma
            along = (gh * hat).mean(tuple(range(-self.axes, 0)), keepdim=True)
            gx = (gh - hat * along).mul_(at.inverse)
        if mask[1]:
            of_gamma = self.reduce(gy * hat)
        return gx, of_gamma, self.reduce(gy) if mask[2] else None


@dataclass(frozen=True)
class OverGroups(Statistics):
    """So many groups of channels in each example: GroupNorm and, with a group for each channel, InstanceNorm."""

    groups: int

    def _sizes(self, x: Tensor) -> tuple[int, int, int, int]:
        return x.shape[0], x.shape[1], x.shape[2:].numel(), self.groups

    def normalise(self, x: Tensor, gamma: Maybe, beta: Maybe, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        return _aten.native_group_norm(x, gamma, beta, *self._sizes(x), eps)

    def back(self, gy: Tensor, at: Standard, gamma: Maybe, mask: list[bool]) -> tuple[Maybe, Maybe, Maybe]:
        gy = gy.contiguous()
        return _aten.native_group_norm_backward(gy, at.x, at.mean, at.inverse, gamma, *self._sizes(gy), mask)

    def grouped(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], self.groups, -1)

    def average(self, groups: Tensor) -> Tensor:
        return groups.mean(-1, keepdim=True)

    def on_groups(self, inverse: Tensor, groups: Tensor) -> Tensor:
        return inverse.unsqueeze(-1)


@dataclass(frozen=True)
class OverBatch(Statistics):
    """Each channel over all examples: BatchNorm in train mode."""

    def normalise(self, x: Tensor, gamma: Maybe, beta: Maybe, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        return _aten.native_batch_norm(x, gamma, beta, None, None, True, 0.0, eps)

    def back(self, gy: Tensor, at: Standard, gamma: Maybe, mask: list[bool]) -> tuple[Maybe, Maybe, Maybe]:
        return _aten.native_batch_norm_backward(
            gy, at.x, gamma, None, None, at.mean, at.inverse, True, 0.0, mask
        )  # fmt: skip

    def grouped(self, x: Tensor) -> Tensor:
        return x

    def average(self, groups: Tensor) -> Tensor:
        return groups.mean([0, *range(2, groups.ndim)], keepdim=True)

    def on_groups(self, inverse: Tensor, groups: Tensor) -> Tensor:
        return on_channels(inverse, groups)


@dataclass(frozen=True)
class GroupedNorm(Layer):
    """gamma x_hat + beta with x_hat = (x - mean) / sqrt(variance + eps) over groups of entries of the input itself."""

    gamma: str | None
    beta: str | None
    eps: float
    statistics: Statistics
    trained: frozenset[str]
    needs_cotangent: ClassVar[bool] = True

    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.gamma, self.beta) if name is not None)

    def weights(self, tensors: Mapping[str, Tensor]) -> Weights:
        return tuple(None if name is None else tensors[name] for name in (self.gamma, self.beta))

    def direction(self, weights: Weights, direction: Gradients) -> Weights:
        return tuple(None if name is None else direction.get(name) for name in (self.gamma, self.beta))

    def move(self, weights: Weights, direction: Weights, step: float) -> Weights:
        return tuple(w if d is None else w + step * d for w, d in zip(weights, direction))

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0].contiguous()
        y, mean, inverse = self.statistics.normalise(x, weights[0], weights[1], self.eps)
        return y, Standard(x, mean, inverse)

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        return (self._back(at, gy, asked),)

    def _back(self, at: LayerPoint, gy: Tensor, asked: Asked, extra: Maybe = None) -> Maybe:
        """The cotangent of the input; the parameters' gradients are written, and with them ``extra`` for gamma."""
        wanted = asked.gradients is not None
        own = [wanted and name is not None and name in self.trained for name in (self.gamma, self.beta)]
        mask = [bool(asked.inputs[0]), *own]
        if not any(mask):
            return None
        alone = at.weights[0] is None and own[1]  # torch's kernels sum for beta beside gamma only
        gx, *found = self.statistics.back(gy, at.memory, at.weights[0], [*mask[:2], own[1] and not alone])
        if alone:
            found[1] = self.statistics.reduce(gy)
        if own[0] and extra is not None:
            found[0] = add_maybe(found[0], self.statistics.reduce(extra))
        if asked.gradients is not None:
            for name, gradient, want in zip((self.gamma, self.beta), found, own):
                if want and name is not None and gradient is not None:
                    write_gradient(asked.gradients, name, gradient)
        return gx if mask[0] else None

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        dx, statistics = tangents[0], self.statistics
        dhat = dy = moved = None
        if dx is not None:
            dhat = statistics.back(dx, at.memory, None, _INPUT)[0]
            assert dhat is not None
            dy = dhat if at.weights[0] is None else dhat * statistics.broadcast(at.weights[0], dhat)
        x: Tensor = at.memory.x
        if direction[0] is not None:
            moved = statistics.normalise(x, direction[0], direction[1], self.eps)[0]
        elif direction[1] is not None:
            moved = statistics.broadcast(direction[1], x).expand(x.shape)
        return add_maybe(dy, moved), (dx, dhat)

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        """With the pull-back gx = J^T (gamma gy): of gx along dgy, along the motion of gamma, and along dx."""
        assert gy is not None
        dx, dhat = along.memory
        extra = None if dhat is None or asked.gradients is None else gy * dhat
        result = self._back(at, torch.zeros_like(gy) if dgy is None else dgy, asked, extra)
        if result is None:
            return (None,)
        statistics, point = self.statistics, at.memory
        if along.direction[0] is not None:
            turned = statistics.back(gy, point, along.direction[0], _INPUT)[0]
            assert turned is not None
            result = result + turned
        return (result if dx is None else result - self._bent(at, gy, dx, dhat),)

    def _bent(self, at: LayerPoint, gy: Tensor, dx: Tensor, dhat: Tensor) -> Tensor:
        """-d gx along dx = (gx <x_hat dx> + dhat <x_hat gamma gy> + x_hat <gx dx>) / sigma, <> the mean of a group.

        d(1 / sigma) = -<x_hat dx> / sigma^2, and <gamma gy dhat> = <gx dx>, as J is symmetric.
        """
        statistics, point, gamma = self.statistics, at.memory, at.weights[0]
        gx = statistics.back(gy, point, gamma, _INPUT)[0]
        assert gx is not None
        hat, _, inverse = statistics.normalise(point.x, None, None, self.eps)
        gh = gy if gamma is None else gy * statistics.broadcast(gamma, gy)
        hats, dhats, gxs, dxs, ghs = map(statistics.grouped, (hat, dhat, gx, dx, gh))
        average, inverse = statistics.average, statistics.on_groups(inverse, hats)
        bent = gxs * (average(hats * dxs) * inverse)
        bent = bent.add_(dhats * (average(hats * ghs) * inverse))
        return bent.add_(hats * (average(gxs * dxs) * inverse)).reshape(gy.shape)
