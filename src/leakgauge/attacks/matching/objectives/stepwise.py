"""Late layers first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from leakgauge.attacks.matching.objectives.base import Objective, WeighedObjective
from leakgauge.attacks.matching.objectives.cosine import Cosine
from leakgauge.attacks.matching.objectives.weighting import Latest
from leakgauge.errors import InvalidCase
from leakgauge.types import ParamTree


@dataclass(frozen=True)
class Stepwise(Objective):
    """Match the late layers first and add the earlier ones as the budget is spent [Ye et al., 2024, HFGradInv].

    The share of tensors that count grows in ``stages`` equal steps from ``first`` to all at ``until`` of the budget.
    """

    objective: WeighedObjective = Cosine()
    first: float = 0.1
    stages: int = 8
    until: float = 0.3

    def __post_init__(self) -> None:
        if self.stages < 1 or not 0 < self.until <= 1:
            raise InvalidCase(f"Stepwise needs stages >= 1 and 0 < until <= 1, got {self}; correct it.")

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        return self.objective(candidate, observed)

    def at(self, spent: float) -> Objective:
        stage = min(self.stages, int(spent / self.until * self.stages + 1e-9))  # 0.6 / 0.8 * 4 rounds below 3
        if stage == self.stages:
            return self.objective
        return replace(self.objective, weighting=Latest(self.first + (1 - self.first) * stage / self.stages))
