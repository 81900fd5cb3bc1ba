"""The sweeps through a network: its gradient in the parameters, and the derivative of that gradient along a direction.

With g(x) = d loss / d parameters and a direction v in the parameters, d<g(x), v>/dx is the derivative of d loss / dx as
the parameters move along v. Sweeps one and two give g and remember each layer's input and output cotangent; sweeps
three and four carry tangents only, so that the whole costs about 7/3 of a training step and builds no graph. In the
frozen difference, sweeps three and four are a second value and cotangent sweep at parameters moved by a small step:
about 5/3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import grad, vjp

from leakgauge.attacks.matching.engine.layers import Asked, Gradients, LayerPoint, Maybe, Motion, add_maybe
from leakgauge.attacks.matching.engine.trace import Network
from leakgauge.protocol.losses import LossFunction

T = TypeVar("T")


class Pulled(NamedTuple):
    """Derivatives of <g, v> in the images and, where asked for, in the parameters and the labels."""

    images: Tensor
    params: Gradients | None
    labels: Maybe


@dataclass
class Remembered:
    """What one pair of sweeps leaves for the next; used up by the first ``pull``."""

    images: Tensor
    labels: Tensor
    memories: list[Any]
    cotangents: list[Maybe]
    logits: Tensor
    image_gradient: Maybe


@dataclass(frozen=True)
class NetworkGradient:
    """The gradient of a network's loss at one set of parameters, and its derivatives."""

    network: Network
    tensors: Mapping[str, Tensor]
    loss: LossFunction
    weights: list[Any] = field(default_factory=list)

    @classmethod
    def at(cls, network: Network, tensors: Mapping[str, Tensor], loss: LossFunction) -> NetworkGradient:
        """Take the network at these parameters and buffers; their storage is shared, not copied."""
        return cls(network, tensors, loss, [step.layer.weights(tensors) for step in network.steps])

    def gradient(self, images: Tensor, labels: Tensor, *, of_images: bool = False) -> tuple[Gradients, Remembered]:
        memories: list[Any] = [None] * len(self.network.steps)
        logits = self._values(self.weights, images, memories, None)
        gradients: Gradients = {}
        seed = _loss_gradient(self.loss, logits, labels)
        cotangents, image_gradient = self._cotangents(self.weights, memories, seed, gradients, of_images)
        return gradients, Remembered(images, labels, memories, cotangents, logits, image_gradient)

    def pull(
        self, kept: Remembered, direction: Gradients, *, of_params: bool = False, of_labels: bool = False
    ) -> Pulled:
        """The exact derivative of <g, direction>; uses up ``direction`` and what was remembered."""
        steps, readers = self.network.steps, self.network.readers()
        along = [step.layer.direction(weights, direction) for step, weights in zip(steps, self.weights)]
        tangents: dict[int, Maybe] = {0: None}
        tangent_memories: list[Any] = []
        for index, step in enumerate(steps):
            inputs = self._take(tangents, step.inputs, readers)
            at = LayerPoint(self.weights[index], kept.memories[index])
            tangents[step.output], memory = step.layer.tangent(at, along[index], inputs)
            tangent_memories.append(memory)
        moved = tangents[self.network.output]
        moved = torch.zeros_like(kept.logits) if moved is None else moved
        seed = _loss_curvature(self.loss, kept.logits, kept.labels, moved)
        gradients: Gradients | None = {} if of_params else None
        curved: dict[int, Maybe] = {self.network.output: seed}
        for index in reversed(range(len(steps))):
            step = steps[index]
            found = step.layer.curvature(
                LayerPoint(self.weights[index], kept.memories[index]),
                Motion(along[index], tangent_memories[index]),
                kept.cotangents[index],
                curved.pop(step.output, None),
                Asked([True] * len(step.inputs), gradients),
            )
            kept.memories[index] = kept.cotangents[index] = along[index] = tangent_memories[index] = None
            for slot, cotangent in zip(step.inputs, found):
                curved[slot] = add_maybe(curved.get(slot), cotangent)
        images = curved.get(0)
        return Pulled(
            torch.zeros_like(kept.images) if images is None else images,
            gradients,
            _label_tangent(self.loss, kept.logits, kept.labels, moved) if of_labels else None,
        )

    def difference(
        self, kept: Remembered, direction: Gradients, step: float, base: Gradients | None = None
    ) -> tuple[Pulled, float]:
        """The one-sided frozen difference over ``step``, and how far the logits moved; uses up ``direction``.

        With ``base``, the gradient at the unmoved parameters, the derivative in the parameters is taken too.
        """
        steps = self.network.steps
        weights = [
            one.layer.move(own, one.layer.direction(own, direction), step) for one, own in zip(steps, self.weights)
        ]
        memories = list(kept.memories)
        logits = self._values(weights, kept.images, memories, kept.memories)
        gradients: Gradients | None = None if base is None else {}
        seed = _loss_gradient(self.loss, logits, kept.labels)
        _, ahead = self._cotangents(weights, memories, seed, gradients, of_images=True)
        assert ahead is not None
        assert kept.image_gradient is not None
        params = None
        if base is not None and gradients is not None:
            params = {name: (gradients[name] - base[name]) / step for name in gradients}
        moved = float((logits - kept.logits).abs().max())
        return Pulled((ahead - kept.image_gradient).div_(step), params, None), moved

    def _values(self, weights: list[Any], images: Tensor, memories: list[Any], frozen: list[Any] | None) -> Tensor:
        readers = self.network.readers()
        values = {0: images}
        for index, step in enumerate(self.network.steps):
            inputs = self._take(values, step.inputs, readers)
            switches = None if frozen is None else frozen[index]
            values[step.output], memories[index] = step.layer.value(weights[index], inputs, switches)
            del inputs
        return values[self.network.output]

    def _take(self, held: dict[int, T], slots: tuple[int, ...], readers: Counter[int]) -> list[T]:
        """What a step reads, let go of where it is the last to read it."""
        found = [held[slot] for slot in slots]
        for slot in slots:
            readers[slot] -= 1
            if readers[slot] == 0 and slot != self.network.output:
                held.pop(slot, None)
        return found

    def _cotangents(
        self, weights: list[Any], memories: list[Any], seed: Tensor, gradients: Gradients | None, of_images: bool
    ) -> tuple[list[Maybe], Maybe]:
        steps = self.network.steps
        kept: list[Maybe] = [None] * len(steps)
        cotangents: dict[int, Maybe] = {self.network.output: seed}
        for index in reversed(range(len(steps))):
            step = steps[index]
            gy = cotangents.pop(step.output, None)
            if gy is None:
                continue  # nothing of the loss depends on this step
            asked = Asked([slot != 0 or of_images for slot in step.inputs], gradients)
            found = step.layer.cotangent(LayerPoint(weights[index], memories[index]), gy, asked)
            if step.layer.needs_cotangent:
                kept[index] = gy
            for slot, cotangent in zip(step.inputs, found):
                cotangents[slot] = add_maybe(cotangents.get(slot), cotangent)
        return kept, cotangents.get(0)


def _loss_gradient(loss: LossFunction, logits: Tensor, labels: Tensor) -> Tensor:
    return grad(lambda scores: loss(scores, labels))(logits)


def _loss_curvature(loss: LossFunction, logits: Tensor, labels: Tensor, moved: Tensor) -> Tensor:
    """The loss's second derivative in the logits, along ``move``."""
    return vjp(lambda scores: _loss_gradient(loss, scores, labels), logits)[1](moved)[0]


def _label_tangent(loss: LossFunction, logits: Tensor, labels: Tensor, moved: Tensor) -> Tensor:
    """d/d labels of d loss along ``move``."""
    return grad(lambda targets: (_loss_gradient(loss, logits, targets) * moved).sum())(labels)
