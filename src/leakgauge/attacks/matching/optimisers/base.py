"""What an optimiser is to a search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from leakgauge.attacks.matching.parametrisations import Box
from leakgauge.types import Outcome


class OptimiserState(Protocol):
    """``candidate`` is what to evaluate next; ``converged`` has one flag per restart."""

    @property
    def candidate(self) -> Tensor: ...

    @property
    def converged(self) -> Tensor: ...


State = TypeVar("State", bound=OptimiserState)


class Optimiser(ABC, Generic[State]):
    outcome_at_rest: ClassVar[Outcome] = Outcome.CONVERGED
    """How a search has ended when all its restarts have."""

    @abstractmethod
    def start(self, candidate: Tensor, box: Box | None) -> State: ...

    @abstractmethod
    def advance(self, state: State, loss: Tensor, gradient: Tensor, spent: float) -> State:
        """The next candidate; ``spent`` is the share of the budget that is used up."""

    @abstractmethod
    def renew(self, state: State, *, anew: bool = True) -> State:
        """The state when what is minimised changes: losses and slopes from before no longer count.

        Where only the weight of a prior has changed it is not ``anew``, and curvature still holds.
        """


def project(candidate: Tensor, box: Box | None) -> Tensor:
    """The nearest point of the box."""
    if box is None:
        return candidate
    low, high = box
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return candidate.clamp(torch.as_tensor(low).to(candidate), torch.as_tensor(high).to(candidate))
    return candidate.clamp(low, high)
