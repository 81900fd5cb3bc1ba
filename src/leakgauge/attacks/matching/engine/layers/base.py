"""What a layer is to the sweeps, and what those without parameters share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.func import vjp

Memory = Any
Weights = Any
Maybe = Tensor | None
Gradients = dict[str, Tensor]


class LayerPoint(NamedTuple):
    """Where a layer stands: its weights, and what its value sweep remembered."""

    weights: Weights
    memory: Memory


class Motion(NamedTuple):
    """How a layer moves: the direction of its weights, and what its tangent sweep remembered."""

    direction: Weights
    memory: Memory


class Asked(NamedTuple):
    """Which inputs want a cotangent, and where the parameters' gradients go, if they are wanted."""

    inputs: Sequence[bool]
    gradients: Gradients | None


class Layer(ABC):
    """One step of a network, from one or more inputs to one output."""

    needs_cotangent: ClassVar[bool] = False
    """Whether ``curvature`` reads the cotangent of the output."""
    switches: ClassVar[bool] = False
    """Whether its derivative jumps somewhere."""

    def names(self) -> tuple[str, ...]:
        """Of the parameters it uses."""
        return ()

    def weights(self, tensors: Mapping[str, Tensor]) -> Weights:
        """What the sweeps use of the parameters and buffers; taken once for one set of them."""
        return None

    def direction(self, weights: Weights, direction: Gradients) -> Weights:
        """A direction in the parameters as one in ``weights``; may use up the tensors it is given."""
        return None

    def move(self, weights: Weights, direction: Weights, step: float) -> Weights:
        """``weights + step * direction``; may use up the direction."""
        return weights

    @abstractmethod
    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]: ...

    @abstractmethod
    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        """Cotangents of the inputs asked for; the parameters' gradients are written where asked."""

    @abstractmethod
    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]: ...

    @abstractmethod
    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        """Tangents of what ``cotangent`` returned and wrote."""


class Linearly(Layer):
    """What layers share that are linear in their input while their switches stand: curvature is cotangent."""

    @abstractmethod
    def along(self, memory: Memory, x: Tensor) -> Tensor:
        """The linear map itself."""

    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        """Its transpose; the same for a map that takes each entry alone."""
        return self.along(memory, gy)

    def cotangent(self, at: LayerPoint, gy: Tensor, asked: Asked) -> tuple[Maybe, ...]:
        return (self.back(at.memory, gy) if asked.inputs[0] else None,)

    def tangent(self, at: LayerPoint, direction: Weights, tangents: Sequence[Maybe]) -> tuple[Maybe, Memory]:
        return None if tangents[0] is None else self.along(at.memory, tangents[0]), None

    def curvature(self, at: LayerPoint, along: Motion, gy: Maybe, dgy: Maybe, asked: Asked) -> tuple[Maybe, ...]:
        return (None if dgy is None or not asked.inputs[0] else self.back(at.memory, dgy),)


def add_maybe(left: Maybe, right: Maybe) -> Maybe:
    """The sum, where ``None`` is zero."""
    if left is None or right is None:
        return right if left is None else left
    return left + right


def write_gradient(gradients: Gradients, name: str, gradient: Tensor) -> None:
    """Added to what other uses of the parameter have written."""
    gradients[name] = gradients[name] + gradient if name in gradients else gradient


def on_channels(vector: Tensor, like: Tensor) -> Tensor:
    """A number for each channel, shaped to multiply a tensor of examples."""
    return vector.view(-1, *[1] * (like.ndim - 2))


def sum_channels(tensor: Tensor) -> Tensor:
    """Over everything but the channels."""
    return tensor.sum(dim=[axis for axis in range(tensor.ndim) if axis != 1])


Pullback = Callable[[Tensor], tuple[Tensor, ...]]
"""From the cotangent of a function's value to those of its inputs; may be called again."""


def with_pullback(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, Pullback]:
    """The value of a function and the transpose of its derivative there."""
    if any(torch._C._functorch.is_functorch_wrapped_tensor(x) for x in inputs):
        return vjp(function, *inputs)[:2]  # in a batch of rows
    leaves = [x.detach().requires_grad_() for x in inputs]
    with torch.enable_grad():
        y = function(*leaves)

    def back(gy: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(y, leaves, gy, retain_graph=True, materialize_grads=True)

    return y.detach(), back
