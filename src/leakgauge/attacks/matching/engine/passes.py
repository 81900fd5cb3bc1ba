"""The sweeps through a network: its gradient in the parameters, and the derivative of that gradient along a direction.

With g(x) = d loss / d parameters and a direction v in the parameters, d<g(x), v>/dx is the derivative of d loss / dx as
the parameters move along v. Sweeps one and two give g and remember each layer's input and output cotangent; sweeps
three and four carry tangents only, so that the whole costs about 7/3 of a training step and builds no graph. In the
frozen difference, sweeps three and four are a second value and cotangent sweep at parameters moved by a small step:
about 5/3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import grad, vjp

from leakgauge.attacks.matching.engine.layers import Asked, Gradients, LayerPoint, Maybe, Motion, add_maybe
from leakgauge.attacks.matching.engine.network import Network
from leakgauge.protocol.losses import LossFunction

T = TypeVar("T")
Scores = tuple[Tensor, ...]
"""The tensors a model returns; mostly one, the logits."""
Bend = Callable[[Scores], Scores]
"""From a motion of the scores to that of the loss's derivative in them."""


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
    scores: Scores
    bend: Bend
    still: dict[int, Tensor]
    """What the steps that move with the parameters read of those that do not."""
    reached: dict[int, Maybe]
    """The cotangents of that, where the images move it and they were asked for."""


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
        tensors = network.with_constants(tensors)
        return cls(network, tensors, loss, [step.layer.weights(tensors) for step in network.steps])

    def gradient(self, images: Tensor, labels: Tensor, *, of_images: bool = False) -> tuple[Gradients, Remembered]:
        """With ``of_images``, what a difference needs is remembered too."""
        memories: list[Any] = [None] * len(self.network.steps)
        still: dict[int, Tensor] = {}
        scores = self._values(images, memories, still)
        gradients: Gradients = {}
        seeds, bend = _slopes_and_bend(self._loss, scores, labels)
        cotangents, reached = self._cotangents(self.weights, memories, seeds, gradients, of_images)
        return gradients, Remembered(images, labels, memories, cotangents, scores, bend, still, reached)

    def pull(
        self, kept: Remembered, direction: Gradients, *, of_params: bool = False, of_labels: bool = False
    ) -> Pulled:
        """The exact derivative of <g, direction>; uses up ``direction`` and what was remembered."""
        steps, readers = self.network.steps, self.network.readers()
        along = self._directions(direction)
        tangents: dict[int, Maybe] = {0: None}
        tangent_memories: list[Any] = []
        for index, step in enumerate(steps):
            inputs = self._take(tangents, step.inputs, readers)
            at = LayerPoint(self.weights[index], kept.memories[index])
            tangents[step.output], memory = step.layer.tangent(at, along[index], inputs)
            tangent_memories.append(memory)
        moved = tuple(
            torch.zeros_like(score) if (tangent := tangents.get(slot)) is None else tangent
            for slot, score in zip(self.network.outputs, kept.scores)
        )
        gradients: Gradients | None = {} if of_params else None
        curved: dict[int, Maybe] = {}
        for slot, seed in zip(self.network.outputs, kept.bend(moved)):
            curved[slot] = add_maybe(curved.get(slot), seed)
        moving = self.network.seen | self.network.learnt if of_params else self.network.seen
        for index in reversed(range(len(steps))):
            step = steps[index]
            found = step.layer.curvature(
                LayerPoint(self.weights[index], kept.memories[index]),
                Motion(along[index], tangent_memories[index]),
                kept.cotangents[index],
                curved.pop(step.output, None),
                Asked([slot in moving for slot in step.inputs], gradients),
            )
            kept.memories[index] = kept.cotangents[index] = along[index] = tangent_memories[index] = None
            for slot, cotangent in zip(step.inputs, found):
                curved[slot] = add_maybe(curved.get(slot), cotangent)
        images = curved.get(0)
        return Pulled(
            torch.zeros_like(kept.images) if images is None else images,
            gradients,
            _label_tangent(self._loss, kept.scores, kept.labels, moved) if of_labels else None,
        )

    def difference(
        self, kept: Remembered, direction: Gradients, step: float, base: Gradients | None = None
    ) -> tuple[Pulled, float]:
        """The one-sided frozen difference over ``step``, and how far the scores moved; uses up ``direction``.

        With ``base``, the gradient at the unmoved parameters, the derivative in the parameters is taken too.
        """
        steps = self.network.steps
        along = self._directions(direction)
        weights = [one.layer.move(own, move, step) for one, own, move in zip(steps, self.weights, along)]
        memories = list(kept.memories)
        scores = self._values_again(weights, memories, kept)
        gradients: Gradients | None = None if base is None else {}
        seeds = _slopes(self._loss, scores, kept.labels)
        _, ahead = self._cotangents(weights, memories, seeds, gradients, of_images=True)
        params = None
        if base is not None and gradients is not None:
            params = {name: (gradients[name] - base[name]) / step for name in gradients}
        moved = max(float((one - two).abs().max()) for one, two in zip(scores, kept.scores))
        return Pulled(self._to_images(kept, ahead, step), params, None), moved

    def _to_images(self, kept: Remembered, ahead: dict[int, Maybe], step: float) -> Tensor:
        """The difference of what was reached, through the steps in front, which no parameter moves."""
        cotangents: dict[int, Maybe] = {}
        for slot, cotangent in ahead.items():
            before = kept.reached[slot]
            assert cotangent is not None
            assert before is not None
            cotangents[slot] = (cotangent - before).div_(step)
        self._back(self.weights, kept.memories, cotangents, None, self.network.seen)
        images = cotangents.get(0)
        return torch.zeros_like(kept.images) if images is None else images

    def _loss(self, scores: Scores, labels: Tensor) -> Tensor:
        return self.loss(self.network.assemble(scores, self.tensors), labels)

    def _directions(self, direction: Gradients) -> list[Any]:
        """Of each layer's weights; a parameter that several layers use is copied, as each may use up its own."""
        shared = [name for name in self.network.shared if name in direction]
        pairs = zip(self.network.steps, self.weights)
        if not shared:
            return [step.layer.direction(weights, direction) for step, weights in pairs]
        return [
            step.layer.direction(weights, {**direction, **{name: direction[name].clone() for name in shared}})
            for step, weights in pairs
        ]

    def _values(self, images: Tensor, memories: list[Any], still: dict[int, Tensor]) -> Scores:
        readers, kept = self.network.readers(), self.network.still
        values = {0: images}
        if 0 in kept:
            still[0] = images
        for index, step in enumerate(self.network.steps):
            inputs = self._take(values, step.inputs, readers)
            values[step.output], memories[index] = step.layer.value(self.weights[index], inputs)
            del inputs
            if step.output in kept:
                still[step.output] = values[step.output]
        return tuple(values[slot] for slot in self.network.outputs)

    def _values_again(self, weights: list[Any], memories: list[Any], kept: Remembered) -> Scores:
        """At other weights, with every switch as it was."""
        readers, values = self.network.readers(), dict(kept.still)
        for index in self.network.moved:
            step = self.network.steps[index]
            inputs = self._take(values, step.inputs, readers)
            values[step.output], memories[index] = step.layer.value(weights[index], inputs, kept.memories[index])
            del inputs
        pairs = zip(self.network.outputs, kept.scores)
        return tuple(values[slot] if slot in self.network.learnt else score for slot, score in pairs)

    def _take(self, held: dict[int, T], slots: tuple[int, ...], readers: Counter[int]) -> list[T]:
        """What a step reads, let go of where it is the last to read it."""
        found = [held[slot] for slot in slots]
        for slot in slots:
            readers[slot] -= 1
            if readers[slot] == 0 and slot not in self.network.outputs:
                held.pop(slot, None)
        return found

    def _cotangents(
        self, weights: list[Any], memories: list[Any], seeds: Scores, gradients: Gradients | None, of_images: bool
    ) -> tuple[list[Maybe], dict[int, Maybe]]:
        """What each layer's curvature needs, and what is reached at the last steps that no parameter moves."""
        network = self.network
        cotangents: dict[int, Maybe] = {}
        for slot, seed in zip(network.outputs, seeds):
            cotangents[slot] = add_maybe(cotangents.get(slot), seed)
        reached = network.still & network.seen if of_images else frozenset()
        kept = self._back(weights, memories, cotangents, gradients, network.learnt, reached)
        return kept, {slot: cotangents[slot] for slot in reached if cotangents.get(slot) is not None}

    def _back(
        self,
        weights: list[Any],
        memories: list[Any],
        cotangents: dict[int, Maybe],
        gradients: Gradients | None,
        through: frozenset[int],
        reached: frozenset[int] = frozenset(),
    ) -> list[Maybe]:
        """The cotangents of slots, carried back ``through`` others and left where they have ``reached``."""
        steps = self.network.steps
        kept: list[Maybe] = [None] * len(steps)
        for index in reversed(range(len(steps))):
            step = steps[index]
            if step.output in reached:
                continue
            gy = cotangents.pop(step.output, None)
            if gy is None:
                continue  # nothing of the loss depends on this step
            asked = Asked([slot in through or slot in reached for slot in step.inputs], gradients)
            found = step.layer.cotangent(LayerPoint(weights[index], memories[index]), gy, asked)
            if step.layer.needs_cotangent:
                kept[index] = gy
            for slot, cotangent in zip(step.inputs, found):
                if cotangent is not None:
                    cotangents[slot] = add_maybe(cotangents.get(slot), cotangent)
        return kept


_Loss = Callable[[Scores, Tensor], Tensor]


def _slopes(loss: _Loss, scores: Scores, labels: Tensor) -> Scores:
    return _slopes_and_bend(loss, scores, labels, bent=False)[0]


def _slopes_and_bend(loss: _Loss, scores: Scores, labels: Tensor, *, bent: bool = True) -> tuple[Scores, Bend]:
    """The loss's derivative in the scores, and from a motion of the scores to the motion of that."""
    if any(torch._C._functorch.is_functorch_wrapped_tensor(x) for x in (*scores, labels)):
        found, back = vjp(lambda scores: grad(lambda own: loss(own, labels))(scores), scores)[:2]
        return found, lambda moved: back(moved)[0]
    leaves = tuple(score.detach().requires_grad_() for score in scores)
    with torch.enable_grad():
        slopes = torch.autograd.grad(loss(leaves, labels), leaves, create_graph=bent, materialize_grads=True)

    def bend(moved: Scores) -> Scores:
        pairs = [(slope, along) for slope, along in zip(slopes, moved) if slope.requires_grad]
        if not pairs:
            return tuple(map(torch.zeros_like, leaves))
        outputs, seeds = zip(*pairs)
        return torch.autograd.grad(outputs, leaves, seeds, retain_graph=True, materialize_grads=True)

    return tuple(slope.detach() for slope in slopes), bend


def _label_tangent(loss: _Loss, scores: Scores, labels: Tensor, moved: Scores) -> Tensor:
    """d/d labels of d loss along ``moved``."""

    def slope(targets: Tensor) -> Tensor:
        pairs = zip(grad(lambda own: loss(own, targets))(scores), moved)
        return torch.stack([(one * along).sum() for one, along in pairs]).sum()

    return grad(slope)(labels)
