"""Gradient matching beside span matching: each leads out of the other's wrong valleys.

A span knows no places, so a picture whose parts lie in the wrong order is a valley of its loss. The gradient of a model
whose head reads features place by place knows them, and its own wrong valleys, which come from kinks, are none of the
spans'. Where features are averaged before the head, one angle over the gradient hardly sees a picture move, and it
misleads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Generator, Tensor

from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.differentiation import Automatic, FrozenDifference
from leakgauge.attacks.matching.loss import RowsLoss, Unknowns
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.attacks.matching.parametrisations import Coordinates
from leakgauge.protocol.observation import UpdateObservation


@dataclass(frozen=True, eq=False)
class Guide:
    """The matching loss of one victim, of which only the direction counts."""

    loss: RowsLoss
    objective: Objective

    @classmethod
    def of(
        cls, observation: UpdateObservation, labels: Tensor, objective: Objective, coordinates: Coordinates
    ) -> Guide:
        generator = Generator()  # draws nothing that is used: labels are known, and of a start only the shape
        attack = GradientMatching(objective=objective, labels=None, differentiation=Automatic(FrozenDifference()))
        problem = attack.problem(replace(observation, labels=labels), generator=generator)
        unknowns = Unknowns(coordinates, len(labels), observation.space, None, False)
        start = unknowns.start(1, generator=generator).to(problem.state.device, problem.state.dtype)
        return cls(RowsLoss((problem,), unknowns, 1, attack.differentiation, start), problem.objective)

    def gradient(self, variables: Tensor) -> Tensor:
        """Of the matching loss, at one candidate."""
        return self.loss.with_gradient(variables[None], self.objective.at(0.0), ())[1][0].nan_to_num(0.0, 0.0, 0.0)
