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
from leakgauge.protocol.local_update import FedSGD, LocalSteps, LocalUpdate
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
        return _result(value, pulled)._replace(position=-tree.dot(pulled.params, observed))

    def _local_steps(self, client: LocalSteps, batch: Batch, wanted: Wanted) -> ValueAndGradient:
        """Back through every local step, one at a time.

        With mu = dD/d(update), step t adds rate * d<g_t, mu>/dx to the images' derivative and turns mu into
        mu - rate * d<g_t, mu>/d params. Parameters are kept at the square root of the number of steps and computed
        again in between, so that memory hardly grows with it, and no graph outlives its step.
        """
        slices, rate = client.batches(len(batch)), client.learning_rate
        stride = max(1, math.isqrt(len(slices)))
        start = self.problem.state.params
        kept, params = {}, start
        for index, rows in enumerate(slices):
            if index % stride == 0:
                kept[index] = params
            params = self._step(params, batch[rows], rate)
        value, adjoint = self.problem.direction(tree.sub(start, params))
        images = torch.zeros_like(batch.inputs)
        labels = torch.zeros_like(batch.labels) if wanted.labels else None
        for first in reversed(range(0, len(slices), stride)):
            segment = slices[first : first + stride]
            path = [kept.pop(first)]
            for rows in segment[:-1]:
                path.append(self._step(path[-1], batch[rows], rate))
            for index in reversed(range(len(segment))):
                rows, last = segment[index], first + index == 0
                _, pull = self.gradient.at(path.pop(), batch[rows], wanted._replace(params=not last))
                pulled = pull(tree.map_tensors(torch.clone, adjoint))
                images[rows] += rate * pulled.images
                if labels is not None and pulled.labels is not None:
                    labels[rows] += rate * pulled.labels
                if pulled.params is not None:
                    adjoint = tree.add(adjoint, pulled.params, scale=-rate)
        return ValueAndGradient(value.detach(), images, labels)

    def _step(self, params: ParamTree, batch: Batch, rate: float) -> ParamTree:
        with torch.no_grad():
            gradient = self.problem.learner.gradient(replace(self.problem.state, params=params), batch)
        return tree.add(params, gradient, scale=-rate)


def _result(value: Tensor, pulled: Pulled) -> ValueAndGradient:
    return ValueAndGradient(value.detach(), pulled.images.detach(), pulled.labels)
