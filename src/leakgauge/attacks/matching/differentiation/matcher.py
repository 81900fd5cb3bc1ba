"""From the derivative of one gradient to that of the matching loss, through what the client makes of its gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.matching.engine import Pulled
from leakgauge.attacks.matching.problem import MatchingProblem, ValueAndGradient
from leakgauge.attacks.matching.surrogate import StraightLine
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.clients import computation
from leakgauge.protocol.local_update import FedSGD, LocalSteps, LocalUpdate, Step
from leakgauge.protocol.optimisers import Memory, StepRule
from leakgauge.types import Batch, ParamTree

Pull = Callable[[dict[str, Tensor]], Pulled]
"""From a direction v in the parameters to the derivatives of <g, v>; uses up v."""


class Wanted(NamedTuple):
    """In what the gradient is to be differentiated, besides the images."""

    params: bool = False
    labels: bool = False


class Linearised(ABC):
    """The gradient of one learner's loss with its derivatives, for any parameters and batch of one shape."""

    @abstractmethod
    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        """The gradient, and its derivative."""


STEP_BY_STEP = (FedSGD, LocalSteps, StraightLine)
"""Clients whose local steps a route differentiates one by one; others are differentiated as a whole."""


def is_step_by_step(client: LocalUpdate | None) -> bool:
    """Whether the client's local steps can be differentiated one by one, so that every route is open."""
    return client is None or isinstance(computation(client), STEP_BY_STEP)


class Place(NamedTuple):
    """Where a client stands between two steps, or the adjoint of that."""

    params: ParamTree
    memory: Memory


@dataclass(frozen=True)
class CandidateLoss(ABC):
    """The matching loss of one candidate and its derivative."""

    problem: MatchingProblem

    @abstractmethod
    def __call__(self, images: Tensor, labels: Tensor) -> ValueAndGradient: ...


@dataclass(frozen=True)
class Matcher(CandidateLoss):
    """The matching loss of candidates and its derivative, through the client's local steps and defences."""

    gradient: Linearised

    def __call__(self, images: Tensor, labels: Tensor) -> ValueAndGradient:
        client = self.problem.client()
        # Class probabilities are differentiated in too; that costs next to nothing, as the labels enter last.
        wanted = Wanted(labels=labels.is_floating_point())
        batch = Batch(images.detach(), labels.detach())
        if isinstance(client, FedSGD):
            gradient, pull = self.gradient.at(self.problem.state.params, batch, wanted)
            value, direction = self.problem.direction(gradient)
            return _result(value, pull(direction))
        if isinstance(client, LocalSteps):
            return self._local_steps(client, batch, wanted)
        if isinstance(client, StraightLine):
            return self._straight_line(client, batch, wanted)
        raise UnsupportedModel(f"The local algorithm {client!r} is differentiated as a whole; use DoubleBackward().")

    def _straight_line(self, client: StraightLine, batch: Batch, wanted: Wanted) -> ValueAndGradient:
        """One gradient at w0 - a (w0 - wT); dD/da = -<dD/d params, w0 - wT>."""
        state, observed = self.problem.state, self.problem.observed
        params = client.halfway(state, observed, client.position).params
        gradient, pull = self.gradient.at(params, batch, wanted._replace(params=True))
        value, direction = self.problem.direction(gradient)
        pulled = pull(direction)
        assert pulled.params is not None
        return _result(value, pulled)._replace(position=-tree.dot(observed, pulled.params))

    def _local_steps(self, client: LocalSteps, batch: Batch, wanted: Wanted) -> ValueAndGradient:
        """Back through every local step, one at a time.

        The adjoint of what a step leaves (parameters, optimiser's memory) becomes that of what it found and of its
        gradient g; a route turns the latter, v, into d<g, v>/dx, for the images, and d<g, v>/d params. Parameters are
        kept at the square root of the number of steps and computed again in between, so that memory hardly grows with
        it, and no graph outlives its step.
        """
        steps = client.steps(len(batch))
        stride = max(1, math.isqrt(len(steps)))
        here = Place(self.problem.state.params, ())
        kept = {}
        for index, step in enumerate(steps):
            if index % stride == 0:
                kept[index] = here
            here = self._step(client, here, batch, step, index)
        value, direction = self.problem.direction(tree.sub(self.problem.state.params, here.params))
        adjoint = Place(
            tree.scale(direction, -1.0), tuple(tree.map_tensors(torch.zeros_like, kept) for kept in here.memory)
        )
        images = torch.zeros_like(batch.inputs)
        labels = torch.zeros_like(batch.labels) if wanted.labels else None
        for first in reversed(range(0, len(steps), stride)):
            segment = steps[first : first + stride]
            path = [kept.pop(first)]
            for index, step in enumerate(segment[:-1], first):
                path.append(self._step(client, path[-1], batch, step, index))
            for index in reversed(range(first, first + len(segment))):
                adjoint, pulled = self._back(client, path.pop(), batch, steps[index], index, adjoint, wanted)
                for rows, part in zip(steps[index], pulled):
                    images[rows] += part.images
                    if labels is not None and part.labels is not None:
                        labels[rows] += part.labels
        return ValueAndGradient(value.detach(), images, labels)

    def _step(self, client: LocalSteps, here: Place, batch: Batch, step: Step, index: int) -> Place:
        start = self.problem.state
        with torch.no_grad():
            gradient = client.gradient(
                self.problem.learner, replace(start, params=here.params), [batch[rows] for rows in step]
            )
            return Place(*client.rule(start.params, here.params, gradient, here.memory, index=index))

    def _back(
        self, client: LocalSteps, here: Place, batch: Batch, step: Step, index: int, adjoint: Place, wanted: Wanted
    ) -> tuple[Place, list[Pulled]]:
        """The adjoint before a step from that after it, and what its mini-batches have to answer for."""
        first = index == 0
        found = [self.gradient.at(here.params, batch[rows], wanted._replace(params=not first)) for rows in step]
        total = found[0][0]
        for gradient, _ in found[1:]:
            total = tree.add(total, gradient)
        before, direction = _rule_adjoint(
            client.rule, self.problem.state.params, here, tree.scale(total, 1 / client.micro_batches), index, adjoint
        )
        direction = tree.scale(direction, 1 / client.micro_batches)
        pulled = [pull(tree.map_tensors(torch.clone, direction)) for _, pull in found]
        params = before.params
        for part in pulled:
            if part.params is not None:
                params = tree.add(params, part.params)
        return before._replace(params=params), pulled


def _rule_adjoint(
    rule: StepRule, start: ParamTree, here: Place, gradient: ParamTree, index: int, adjoint: Place
) -> tuple[Place, dict[str, Tensor]]:
    """The adjoints of place and gradient from that of where the step leads; entry by entry, so next to no work."""

    def leaves(found: ParamTree) -> dict[str, Tensor]:
        return tree.map_tensors(lambda tensor: tensor.detach().requires_grad_(), found)

    given = [leaves(here.params), leaves(gradient), *(leaves(kept) for kept in here.memory)]
    with torch.enable_grad():
        params, memory = rule(start, given[0], given[1], tuple(given[2:]), index=index)
    outputs, weights = list(params.values()), [adjoint.params[name] for name in params]
    for kept, weight in zip(memory, adjoint.memory, strict=True):
        outputs += kept.values()
        weights += [weight[name] for name in kept]
    variables = [tensor for one in given for tensor in one.values()]
    found = iter(torch.autograd.grad(outputs, variables, weights, materialize_grads=True))
    answers = [{name: next(found) for name in one} for one in given]
    return Place(answers[0], tuple(answers[2:])), answers[1]


def _result(value: Tensor, pulled: Pulled) -> ValueAndGradient:
    return ValueAndGradient(value.detach(), pulled.images.detach(), pulled.labels)
