"""What a route is, for one candidate and for many: one row per restart and victim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from leakgauge import params as tree
from leakgauge.attacks.matching.differentiation.matcher import CandidateLoss, Linearised, Matcher
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.attacks.matching.problem import MatchingProblem, ValueAndGradient
from leakgauge.attacks.matching.surrogate import StraightLine
from leakgauge.protocol import clients
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.types import ParamTree


class Rows(NamedTuple):
    """Independent candidates: one row per restart and victim. ``observed`` is stacked when the victims differ."""

    images: Tensor
    labels: Tensor
    observed: ParamTree | None = None
    position: Tensor | None = None


RowwiseLoss = Callable[[Rows, Objective], ValueAndGradient]


@dataclass(frozen=True)
class OneByOne:
    """Rows one after another."""

    matcher: CandidateLoss

    def __call__(self, rows: Rows, objective: Objective) -> ValueAndGradient:
        found = []
        for index, (images, labels) in enumerate(zip(rows.images, rows.labels, strict=True)):
            problem = replace(self.matcher.problem, objective=objective)
            if rows.observed is not None:
                problem = replace(problem, observed=tree.map_tensors(lambda stack: stack[index], rows.observed))  # noqa: B023
            if rows.position is not None:
                problem = replace(problem, local_update=_place(problem.local_update, float(rows.position[index])))
            found.append(replace(self.matcher, problem=problem)(images, labels))
        return stack_rows(found)


@dataclass(frozen=True)
class Together:
    """Rows side by side, by ``vmap``, at most ``chunk`` of them at a time."""

    problem: MatchingProblem
    evaluate: Callable[[MatchingProblem, Tensor, Tensor], tuple[Tensor, ...]]
    chunk: int

    def __call__(self, rows: Rows, objective: Objective) -> ValueAndGradient:
        def row(images: Tensor, labels: Tensor, observed: ParamTree) -> tuple[Tensor, ...]:
            return self.evaluate(replace(self.problem, observed=observed, objective=objective), images, labels)

        shared = rows.observed is None
        observed = self.problem.observed if rows.observed is None else rows.observed
        found = vmap(row, in_dims=(0, 0, None if shared else 0), chunk_size=self.chunk)(
            rows.images, rows.labels, dict(observed)
        )
        return ValueAndGradient(*(tensor.detach() for tensor in found))


def stack_rows(rows: list[ValueAndGradient]) -> ValueAndGradient:
    value, gradient, labels, position = (
        None if column[0] is None else torch.stack([entry for entry in column if entry is not None])
        for column in zip(*rows)
    )
    assert value is not None
    assert gradient is not None
    return ValueAndGradient(value, gradient, labels, position)


def _place(client: LocalUpdate, position: float) -> LocalUpdate:
    """The client with the attacker's surrogate at this position."""
    surrogate = clients.algorithm(client)
    if not isinstance(surrogate, StraightLine):
        return client
    return clients.with_algorithm(client, replace(surrogate, position=position))


class Choice(NamedTuple):
    """A concrete route, and for the record why it is this one."""

    route: Differentiation
    why: str = ""


class Differentiation(ABC):
    """A route to the derivative of the matching loss."""

    @abstractmethod
    def linearise(self, problem: MatchingProblem, images: Tensor) -> Linearised:
        """The problem's gradient as this route takes it; refuses a model the route does not hold for."""

    def resolve(self, problem: MatchingProblem, images: Tensor) -> Differentiation:
        """The concrete route for this problem."""
        del problem, images
        return self

    def choose(self, problem: MatchingProblem, images: Tensor) -> Choice:
        """The same, with the reason."""
        return Choice(self.resolve(problem, images))

    def matcher(self, problem: MatchingProblem, images: Tensor) -> CandidateLoss:
        """The matching loss with its derivative, as a function of a candidate shaped like ``images``."""
        return Matcher(problem, self.linearise(problem, images))

    def one(self, problem: MatchingProblem, images: Tensor) -> ValueAndGradient:
        """Loss and its gradient for one candidate batch ``n c h w``."""
        return self.matcher(problem, images)(images, problem.labels)

    def rowwise(self, problem: MatchingProblem, images: Tensor, *, chunk: int) -> RowwiseLoss:
        """All rows' losses with their derivatives; this one takes them one after another."""
        del chunk
        return OneByOne(self.matcher(problem, images))
