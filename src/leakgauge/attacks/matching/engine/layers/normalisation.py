"""BatchNorm by running statistics: folded into the layer before it, or a layer of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    Weights,
    on_channels,
    sum_channels,
    write_gradient,
)


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
        return x * on_channels(factor, x) + on_channels(offset, x), x

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        if asked.gradients is not None:
            self._write(asked.gradients, gy * self._hat(at), gy)
        return (gy * on_channels(at.weights[0], gy) if asked.inputs[0] else None,)

    def _hat(self, at: LayerPoint) -> Tensor:
        x: Tensor = at.memory
        _, _, mean, inverse = at.weights
        return (x - on_channels(mean, x)) * on_channels(inverse, x)

    def _write(self, gradients: Gradients, for_gamma: Tensor, for_beta: Tensor) -> None:
        for name, summands in ((self.norm.gamma, for_gamma), (self.norm.beta, for_beta)):
            if name is not None and name in self.trained:
                write_gradient(gradients, name, sum_channels(summands))

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        x: Tensor = at.memory
        factor, _, mean, _ = at.weights
        dx = tangents[0]
        dy = None if dx is None else dx * on_channels(factor, dx)
        if direction[0] is not None:
            moved = (x - on_channels(mean, x)) * on_channels(direction[0], x)
            dy = moved if dy is None else dy + moved
        if direction[1] is not None:
            beta = on_channels(direction[1], x)
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
                gamma = gamma + gy * dx * on_channels(inverse, gy)
            self._write(asked.gradients, gamma, dgy)
        if not asked.inputs[0]:
            return (None,)
        dgx = dgy * on_channels(factor, dgy)
        turned = along.direction[0]
        return (dgx if turned is None else dgx + gy * on_channels(turned, gy),)
