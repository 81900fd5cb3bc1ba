"""Softmax, and attention as one layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

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


def _turn(y: Tensor, along: Tensor, axis: int = -1) -> Tensor:
    """The derivative of y = softmax(x) times a vector, y (along - <along, y>); it is its own transpose."""
    return torch.ops.aten._softmax_backward_data(along, y, axis, y.dtype)


def _turned(y: Tensor, dy: Tensor, gy: Tensor, axis: int = -1) -> Tensor:
    """The motion of ``_turn(y, gy)`` as y moves along dy."""
    moved = dy * gy
    inner = (y * gy).sum(axis, keepdim=True)
    bent = y * moved.sum(axis, keepdim=True)
    return moved.sub_(bent).sub_(dy * inner)


@dataclass(frozen=True)
class Softmax(Layer):
    """y = exp(x) over its sum along one axis: gx = y (gy - <gy, y>)."""

    axis: int
    needs_cotangent: ClassVar[bool] = True

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        y = inputs[0].softmax(self.axis)
        return y, y

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        return (_turn(at.memory, gy, self.axis) if asked.inputs[0] else None,)

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        dy = None if tangents[0] is None else _turn(at.memory, tangents[0], self.axis)
        return dy, dy

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        y, dy = at.memory, along.memory
        if not asked.inputs[0]:
            return (None,)
        dgx = None if dgy is None else _turn(y, dgy, self.axis)
        if dy is None or gy is None:
            return (dgx,)
        return (add_maybe(dgx, _turned(y, dy, gy, self.axis)),)


@dataclass
class _Seen:
    """What one value sweep leaves: stacks of matrices, the query scaled already, and the cotangent of the weights."""

    query: Tensor
    key: Tensor
    value: Tensor
    weights: Tensor
    shapes: tuple[torch.Size, ...]
    of_weights: Maybe = None


@dataclass(frozen=True)
class Attention(Layer):
    """softmax(scale q k^T + mask) v, the mask a constant; q, k and v are stacks of as many matrices.

    With P the softmax, S its argument and q scaled already, the sweeps are those of two products and a softmax in
    between; each sum of two products is one call.
    """

    scale: float
    mask: str | None
    shape: tuple[int, ...]
    """Of the result."""
    needs_cotangent: ClassVar[bool] = True

    def weights(self, tensors: Mapping[str, Tensor]) -> Weights:
        return None if self.mask is None else tensors[self.mask]

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        query, key, value = map(_stack, inputs)
        query = query * self.scale
        scores = torch.bmm(query, key.mT)
        if weights is not None:
            whole = (*self.shape[:-1], key.shape[-2])
            scores = (scores.view(whole) + weights).view(scores.shape)
        shares = scores.softmax(-1)
        result = torch.bmm(shares, value).view(self.shape)
        return result, _Seen(query, key, value, shares, tuple(x.shape for x in inputs))

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        seen: _Seen = at.memory
        gy = _stack(gy)
        gq = gk = gv = None
        if asked.inputs[0] or asked.inputs[1]:
            seen.of_weights = torch.bmm(gy, seen.value.mT)
            gs = _turn(seen.weights, seen.of_weights)
            gq = torch.bmm(gs, seen.key).mul_(self.scale) if asked.inputs[0] else None
            gk = torch.bmm(gs.mT, seen.query) if asked.inputs[1] else None
        if asked.inputs[2]:
            gv = torch.bmm(seen.weights.mT, gy)
        return _as_given(seen.shapes, gq, gk, gv)

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        seen: _Seen = at.memory
        dq, dk, dv = (None if dx is None else _stack(dx) for dx in tangents)
        dq = None if dq is None else dq * self.scale
        ds = _products((dq, seen.key.mT), (seen.query, None if dk is None else dk.mT))
        moved = None if ds is None else _turn(seen.weights, ds)
        dy = _products((moved, seen.value), (seen.weights, dv))
        return None if dy is None else dy.view(self.shape), (dq, dk, dv, moved)

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        assert gy is not None
        seen: _Seen = at.memory
        dq, dk, dv, moved = along.memory
        gy, dgy = _stack(gy), None if dgy is None else _stack(dgy)
        dgq = dgk = dgv = None
        if asked.inputs[0] or asked.inputs[1]:
            of_weights = torch.bmm(gy, seen.value.mT) if seen.of_weights is None else seen.of_weights
            gs = _turn(seen.weights, of_weights)
            dgp = _products((dgy, seen.value.mT), (gy, None if dv is None else dv.mT))
            dgs = None if dgp is None else _turn(seen.weights, dgp)
            if moved is not None:
                dgs = add_maybe(dgs, _turned(seen.weights, moved, of_weights))
            if asked.inputs[0]:
                dgq = _products((dgs, seen.key), (gs, dk))
                dgq = None if dgq is None else dgq.mul_(self.scale)
            if asked.inputs[1]:
                dgk = _products((None if dgs is None else dgs.mT, seen.query), (gs.mT, dq))
        if asked.inputs[2]:
            dgv = _products((seen.weights.mT, dgy), (None if moved is None else moved.mT, gy))
        return _as_given(seen.shapes, dgq, dgk, dgv)


def _stack(x: Tensor) -> Tensor:
    return x.reshape(-1, *x.shape[-2:])


def _as_given(shapes: tuple[torch.Size, ...], *found: Maybe) -> tuple[Maybe, ...]:
    return tuple(None if one is None else one.view(shape) for one, shape in zip(found, shapes))


def _products(*pairs: tuple[Maybe, Maybe]) -> Maybe:
    """The sum of products of stacks of matrices, where ``None`` is zero."""
    total = None
    for left, right in pairs:
        if left is not None and right is not None:
            total = torch.bmm(left, right) if total is None else torch.baddbmm(total, left, right)
    return total
