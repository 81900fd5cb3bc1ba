"""Normalisation layers: by the input's own statistics, or by running ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    write_gradient,
)


class Layout(NamedTuple):
    """Over which entries a layer normalises, and how its parameters lie on the input."""

    grouped: Callable[[Tensor], Tensor]
    """The input in the shape (groups..., entries), whose last axis is averaged over."""
    ungrouped: Callable[[Tensor, Tensor], Tensor]
    """Back into the shape of the second."""
    broadcast: Callable[[Tensor, Tensor], Tensor]
    """A parameter, shaped to multiply the second."""
    reduce: Callable[[Tensor], Tensor]
    """The sum over all that ``broadcast`` repeats."""


@dataclass(frozen=True)
class GroupedNorm(Layer):
    """gamma x_hat + beta with x_hat = (x - mean) / sqrt(variance + eps) over groups of entries of the input itself.

    BatchNorm in train mode, GroupNorm, LayerNorm and InstanceNorm differ by their layout alone; RMSNorm is not
    ``centred``, its mean counts as 0.
    """

    gamma: str | None
    beta: str | None
    eps: float
    layout: Layout
    trained: frozenset[str]
    centred: bool = True
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
        x = inputs[0]
        gamma, beta = weights
        groups = self.layout.grouped(x)
        centred = groups - groups.mean(dim=-1, keepdim=True) if self.centred else groups
        inverse = (centred.square().mean(dim=-1, keepdim=True) + self.eps).rsqrt()
        hat = self.layout.ungrouped(centred * inverse, x)
        y = self._scaled(hat, gamma)
        return y if beta is None else y + self.layout.broadcast(beta, hat), (hat, inverse)

    def _scaled(self, x: Tensor, gamma: Maybe) -> Tensor:
        return x if gamma is None else x * self.layout.broadcast(gamma, x)

    def _project(self, groups: Tensor, hat: Tensor) -> Tensor:
        """What is left of a change of x when mean and variance are held: (1 - 1 1^T - x_hat x_hat^T) over a group."""
        along = hat * (groups * hat).mean(dim=-1, keepdim=True)
        return groups - groups.mean(dim=-1, keepdim=True) - along if self.centred else groups - along

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        hat, inverse = at.memory
        if asked.gradients is not None:
            self._write(asked.gradients, gy * hat, gy)
        if not asked.inputs[0]:
            return (None,)
        gh = self._scaled(gy, at.weights[0])
        grouped = self.layout.grouped
        return (self.layout.ungrouped(inverse * self._project(grouped(gh), grouped(hat)), gy),)

    def _write(self, gradients: Gradients, for_gamma: Tensor, for_beta: Tensor) -> None:
        for name, summands in ((self.gamma, for_gamma), (self.beta, for_beta)):
            if name is not None and name in self.trained:
                write_gradient(gradients, name, self.layout.reduce(summands))

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        hat, inverse = at.memory
        grouped, ungrouped, broadcast, _ = self.layout
        dx = tangents[0]
        dhat = dy = None
        if dx is not None:
            dhat = ungrouped(inverse * self._project(grouped(dx), grouped(hat)), hat)
            dy = self._scaled(dhat, at.weights[0])
        if direction[0] is not None or direction[1] is not None:
            zero = torch.zeros_like(hat) if direction[0] is None else hat * broadcast(direction[0], hat)
            moved = zero if direction[1] is None else zero + broadcast(direction[1], hat)
            dy = moved if dy is None else dy + moved
        return dy, (dx, dhat)

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        assert gy is not None
        (hat, inverse), (dx, dhat) = at.memory, along.memory
        grouped, ungrouped, broadcast, _ = self.layout
        dgy = torch.zeros_like(gy) if dgy is None else dgy
        if asked.gradients is not None:
            self._write(asked.gradients, dgy * hat if dhat is None else dgy * hat + gy * dhat, dgy)
        if not asked.inputs[0]:
            return (None,)
        gh, dgh = gy, dgy
        if at.weights[0] is not None:
            gamma = broadcast(at.weights[0], gy)
            gh, dgh = gy * gamma, dgy * gamma
        if along.direction[0] is not None:
            dgh = dgh + gy * broadcast(along.direction[0], gy)
        hats, ghs, dghs = grouped(hat), grouped(gh), grouped(dgh)
        result = inverse * self._project(dghs, hats)
        if dx is not None:
            assert dhat is not None
            dhats = grouped(dhat)
            projected = inverse * self._project(ghs, hats)
            # d(1/sigma) = -(1/sigma)^2 mean(x_hat dx)
            shrink = inverse * (hats * grouped(dx)).mean(dim=-1, keepdim=True)
            turn = dhats * (ghs * hats).mean(dim=-1, keepdim=True) + hats * (ghs * dhats).mean(dim=-1, keepdim=True)
            result = result - shrink * projected - inverse * turn
        return (ungrouped(result, gy),)


@dataclass(frozen=True)
class EvalNorm:
    """BatchNorm with running statistics, gamma (y - mean) / sqrt(variance + eps) + beta; names of its tensors."""

    gamma: str | None
    beta: str | None
    mean: str
    variance: str
    eps: float

    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.gamma, self.beta) if name is not None)

    def scale(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """gamma / sigma and 1 / sigma."""
        inverse = (tensors[self.variance] + self.eps).rsqrt()
        return (inverse if self.gamma is None else tensors[self.gamma] * inverse), inverse


@dataclass(frozen=True)
class ChannelAffine(Layer):
    """BatchNorm with running statistics where it cannot be folded: s (x - mean) + beta, s = gamma / sigma."""

    norm: EvalNorm
    trained: frozenset[str]
    needs_cotangent: ClassVar[bool] = True

    def names(self) -> tuple[str, ...]:
        return self.norm.names()

    def weights(self, tensors: Mapping[str, Tensor]) -> Weights:
        factor, inverse = self.norm.scale(tensors)
        beta = None if self.norm.beta is None else tensors[self.norm.beta]
        return factor, beta, tensors[self.norm.mean], inverse

    def direction(self, weights: Weights, direction: Gradients) -> Weights:
        gamma = None if self.norm.gamma is None else direction.get(self.norm.gamma)
        beta = None if self.norm.beta is None else direction.get(self.norm.beta)
        return None if gamma is None else gamma * weights[3], beta

    def move(self, weights: Weights, direction: Weights, step: float) -> Weights:
        factor, beta, mean, inverse = weights
        factor = factor if direction[0] is None else factor + step * direction[0]
        return factor, beta if direction[1] is None else beta + step * direction[1], mean, inverse

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        factor, beta, mean, _ = weights
        offset = -mean * factor if beta is None else beta - mean * factor
        return x * _on_channels(factor, x) + _on_channels(offset, x), x

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        if asked.gradients is not None:
            self._write(asked.gradients, gy * self._hat(at), gy)
        return (gy * _on_channels(at.weights[0], gy) if asked.inputs[0] else None,)

    def _hat(self, at: LayerPoint) -> Tensor:
        x: Tensor = at.memory
        _, _, mean, inverse = at.weights
        return (x - _on_channels(mean, x)) * _on_channels(inverse, x)

    def _write(self, gradients: Gradients, for_gamma: Tensor, for_beta: Tensor) -> None:
        for name, summands in ((self.norm.gamma, for_gamma), (self.norm.beta, for_beta)):
            if name is not None and name in self.trained:
                write_gradient(gradients, name, _sum_channels(summands))

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        x: Tensor = at.memory
        factor, _, mean, _ = at.weights
        dx = tangents[0]
        dy = None if dx is None else dx * _on_channels(factor, dx)
        if direction[0] is not None:
            moved = (x - _on_channels(mean, x)) * _on_channels(direction[0], x)
            dy = moved if dy is None else dy + moved
        if direction[1] is not None:
            beta = _on_channels(direction[1], x)
            dy = beta.expand(x.shape) if dy is None else dy + beta
        return dy, dx

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        assert gy is not None
        factor, _, _, inverse = at.weights
        dx: Maybe = along.memory
        dgy = torch.zeros_like(gy) if dgy is None else dgy
        if asked.gradients is not None:
            gamma = dgy * self._hat(at)
            if dx is not None:
                gamma = gamma + gy * dx * _on_channels(inverse, gy)
            self._write(asked.gradients, gamma, dgy)
        if not asked.inputs[0]:
            return (None,)
        dgx = dgy * _on_channels(factor, dgy)
        turned = along.direction[0]
        return (dgx if turned is None else dgx + gy * _on_channels(turned, gy),)


def _on_channels(vector: Tensor, like: Tensor) -> Tensor:
    return vector.view(-1, *[1] * (like.ndim - 2))


def _sum_channels(tensor: Tensor) -> Tensor:
    return tensor.sum(dim=[axis for axis in range(tensor.ndim) if axis != 1])


BATCH = Layout(
    lambda x: x.transpose(0, 1).flatten(1),
    lambda split, like: split.reshape(like.transpose(0, 1).shape).transpose(0, 1),
    _on_channels,
    _sum_channels,
)
"""One group per channel, over all examples."""


def group_layout(groups: int) -> Layout:
    """So many groups of channels in each example."""
    return Layout(
        lambda x: x.reshape(x.shape[0], groups, -1),
        lambda split, like: split.reshape(like.shape),
        _on_channels,
        _sum_channels,
    )


def layer_layout(axes: int) -> Layout:
    """The last so many axes, each entry with parameters of its own."""
    return Layout(
        lambda x: x.flatten(-axes),
        lambda split, like: split.reshape(like.shape),
        lambda vector, _: vector,
        lambda tensor: tensor.sum(dim=list(range(tensor.ndim - axes))),
    )
