"""How far a candidate's update is from the observed one: a scalar, zero when they agree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor
from torch.func import grad_and_value

from leakgauge.attacks.matching.objectives.weighting import Uniform, Weighting
from leakgauge.types import ParamTree

TINY = 1e-30  # keeps 0/0 finite when an update vanishes


class Objective(ABC):
    @abstractmethod
    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor: ...

    def at(self, spent: float) -> Objective:
        """The objective when this share of the budget is spent."""
        del spent
        return self

    def direction(self, candidate: ParamTree, observed: ParamTree) -> tuple[Tensor, dict[str, Tensor]]:
        """The distance D and dD/d candidate; may use up ``candidate``."""
        gradient, value = grad_and_value(lambda update: self(update, observed))(dict(candidate))
        return value, gradient


@dataclass(frozen=True)
class WeighedObjective(Objective, ABC):
    """One that counts each tensor with a weight."""

    weighting: Weighting = Uniform()
