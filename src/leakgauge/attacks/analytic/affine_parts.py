"""Where a network is affine in some of its values, however that is written, and how to solve such a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from leakgauge.attacks.matching.engine import trace
from leakgauge.attacks.matching.engine.layers import Asked, LayerPoint, Maybe, add_maybe
from leakgauge.attacks.matching.engine.layers.operations import Undifferentiated
from leakgauge.attacks.matching.engine.network import Network, NetworkStep
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import ModelState, ParamTree

_SAME = 1e-9
"""The relative difference up to which two results of the same computation in float64 are equal."""
_ITERATIONS, _ROUNDS, _ROUGHLY = 200, 8, 1e-6
"""Of conjugate gradients: steps in a round, rounds, and the share of a round's residual that is left to the next."""


@dataclass(frozen=True)
class RunNetwork:
    """A network with the weights the server sent, in float64, after it ran on a probe of one input or more."""

    network: Network
    weights: tuple[Any, ...]
    values: dict[int, Tensor] = field(repr=False)
    """Of each slot."""
    memories: tuple[Any, ...] = field(repr=False)

    @classmethod
    def of(cls, observation: UpdateObservation, count: int = 1) -> RunNetwork:
        """The model as its client runs it on so many inputs; refused with `UnsupportedModel` if it cannot be read."""
        state = ModelState(_double(observation.state.params), _double(observation.state.buffers))
        probe = observation.space.probe(count, state)
        network = trace(observation.learner.without_dropout(), state, probe, fold=False)
        tensors = network.with_constants({**state.params, **state.buffers})
        weights = tuple(step.layer.weights(tensors) for step in network.steps)
        values, memories = {0: probe}, []
        with torch.no_grad():
            for index, step in enumerate(network.steps):
                value, memory = step.layer.value(weights[index], [values[slot] for slot in step.inputs])
                values[step.output] = value
                memories.append(memory)
        return cls(network, weights, values, tuple(memories))

    def run(self, index: int, inputs: Sequence[Tensor]) -> Tensor:
        return self.network.steps[index].layer.value(self.weights[index], inputs)[0]

    def part(self, *starts: int) -> AffinePart:
        """All that is affine in these slots together; every other value stays as on the probe."""
        members, beyond = dict.fromkeys(starts), set[int]()
        inside: list[int] = []
        ends: dict[int, None] = {}
        for index, step in enumerate(self.network.steps):
            if step.output in members:
                continue
            reads = [slot for slot in step.inputs if slot in members]
            if not reads and not beyond.intersection(step.inputs):
                continue
            if not beyond.intersection(step.inputs) and self._is_affine(index, step, set(reads)):
                members[step.output] = None
                inside.append(index)
            else:
                beyond.add(step.output)
                ends.update(dict.fromkeys(reads))
        ends.update({slot: None for slot in self.network.outputs if slot in members})
        return AffinePart(self, starts, tuple(inside), tuple(ends), frozenset(members))

    def is_affine(self, index: int) -> bool:
        """Whether a step is affine in all that it reads."""
        step = self.network.steps[index]
        return self._is_affine(index, step, set(step.inputs))

    def _is_affine(self, index: int, step: NetworkStep, moving: set[int]) -> bool:
        """By trial at three points on a line: whatever the operation is called, it is what it does that counts."""
        if isinstance(step.layer, Undifferentiated):
            return False
        generator = torch.Generator().manual_seed(index)

        def draw(slot: int) -> Tensor:
            value = self.values[slot]
            return value + 3 * torch.randn(value.shape, generator=generator, dtype=value.dtype).to(value.device)

        one, two = ({slot: draw(slot) for slot in moving} for _ in range(2))
        middle = {slot: 0.25 * one[slot] + 0.75 * two[slot] for slot in moving}
        with torch.no_grad():
            results = [
                self.run(index, [point.get(slot, self.values[slot]) for slot in step.inputs])
                for point in (one, two, middle)
            ]
        return is_same(results[2], 0.25 * results[0] + 0.75 * results[1])


@dataclass(frozen=True)
class AffinePart:
    """What is affine in the slots it ``starts`` from; everything else sees of them only the slots where it ``ends``."""

    whole: RunNetwork
    starts: tuple[int, ...]
    inside: tuple[int, ...]
    ends: tuple[int, ...]
    members: frozenset[int]

    def values(self, start: int, value: Tensor) -> dict[int, Tensor]:
        """Of all slots that one of the starts moves, the other starts being as on the probe."""
        found = {start: value}
        for index in self.inside:
            step = self.whole.network.steps[index]
            if any(slot in found for slot in step.inputs):
                inputs = [found.get(slot, self.whole.values[slot]) for slot in step.inputs]
                found[step.output] = self.whole.run(index, inputs)
        return found

    def to(self, *ends: int, start: int | None = None) -> AffineMap:
        """How slots, one after another in one vector, follow from one of the starts, or from the first."""
        first = self.starts[0] if start is None else start
        probed = self.whole.values

        def forward(value: Tensor) -> Tensor:
            found = self.values(first, value)
            return torch.cat([found.get(slot, probed[slot]).flatten() for slot in ends])

        def back(vector: Tensor) -> Tensor:
            parts = vector.split([probed[slot].numel() for slot in ends])
            return self._cotangent(first, {slot: one.view(probed[slot].shape) for slot, one in zip(ends, parts)})

        return AffineMap(forward, back, probed[first])

    def _cotangent(self, start: int, cotangents: dict[int, Maybe]) -> Tensor:
        whole = self.whole
        for index in reversed(self.inside):
            step = whole.network.steps[index]
            gy = cotangents.pop(step.output, None)
            if gy is None:
                continue
            at = LayerPoint(whole.weights[index], whole.memories[index])
            found = step.layer.cotangent(at, gy, Asked([slot in self.members for slot in step.inputs], None))
            for slot, cotangent in zip(step.inputs, found):
                cotangents[slot] = add_maybe(cotangents.get(slot), cotangent)
        found_at_start = cotangents.get(start)
        return torch.zeros_like(whole.values[start]) if found_at_start is None else found_at_start


@dataclass(frozen=True)
class AffineMap:
    """A function that is known to be affine, and the transpose of its linear part."""

    forward: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]
    like: Tensor

    @cached_property
    def offset(self) -> Tensor:
        return self.forward(torch.zeros_like(self.like))

    def along(self, value: Tensor) -> Tensor:
        """The linear part."""
        return self.forward(value) - self.offset

    def solve(self, value: Tensor) -> Tensor:
        """The shortest of those that the linear part brings nearest to a value, by conjugate gradients.

        Permutations, scales and selections, of which these maps consist, have few different singular values, and as
        many iterations are exact.
        """
        return conjugate_gradients(lambda x: self.back(self.along(x)), self.back(value))

    def solve_transposed(self, value: Tensor) -> Tensor:
        """The shortest cotangent of the result that ``back`` turns into a value, or into the nearest to it."""
        return self.along(conjugate_gradients(lambda x: self.back(self.along(x)), value))

    def reaches(self, value: Tensor) -> bool:
        """Whether the linear part gives this value of anything."""
        return is_same(self.along(self.solve(value)), value)

    def is_one_to_one(self) -> bool:
        """Whether no two inputs give the same: a random one comes back from its image."""
        generator = torch.Generator().manual_seed(0)
        probe = torch.randn(self.like.shape, generator=generator, dtype=self.like.dtype).to(self.like.device)
        return is_same(self.solve(self.along(probe)), probe)

    def then(self, forward: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]) -> AffineMap:
        """This map, and a linear one with its transpose behind it."""
        return AffineMap(lambda value: forward(self.forward(value)), lambda gy: self.back(back(gy)), self.like)


def conjugate_gradients(apply: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """The shortest x for which a symmetric, positive semidefinite ``apply`` gives ``value``, as nearly as it can.

    Made precise in rounds, each on what the one before left, brought to unit length: an ``apply`` that is a difference
    of two large results has the same error for short directions as for long ones, and the former would be lost in it.
    """
    x, rest = torch.zeros_like(value), value.clone()
    length = first = rest.norm()
    for _ in range(_ROUNDS):
        if not length > torch.finfo(value.dtype).eps * first:
            break
        nearer = x + length * _one_round(apply, rest / length)
        left = value - apply(nearer)
        if not left.norm() < length:
            break
        x, rest, length = nearer, left, left.norm()
    return x


def _one_round(apply: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    x, rest = torch.zeros_like(value), value.clone()
    direction, square = rest.clone(), rest.square().sum()
    for _ in range(_ITERATIONS):
        if not square > _ROUGHLY**2:
            break
        turned = apply(direction)
        curvature = (direction * turned).sum()
        if not curvature > 0:
            break
        x += (square / curvature) * direction
        rest -= (square / curvature) * turned
        before, square = square, rest.square().sum()
        direction = rest + (square / before) * direction
    return x


def is_same(one: Tensor, two: Tensor) -> bool:
    return one.shape == two.shape and bool((one - two).norm() <= _SAME * (two.norm() + torch.finfo(two.dtype).tiny))


def _double(tensors: ParamTree) -> ParamTree:
    return {name: one.double() if one.is_floating_point() else one for name, one in tensors.items()}
