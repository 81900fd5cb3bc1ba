"""A prior that is weighed against the matching loss."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from leakgauge.attacks.matching.priors.base import Prior
from leakgauge.attacks.matching.priors.total_variation import TotalVariation
from leakgauge.errors import InvalidCase
from leakgauge.protocol.observation import UpdateObservation


@dataclass(frozen=True)
class Scaled(Prior):
    """Another prior times ``factor``."""

    prior: Prior
    factor: float

    def __call__(self, images: Tensor) -> Tensor:
        return self.factor * self.prior(images)

    def at(self, spent: float) -> Prior | None:
        current = self.prior.at(spent)
        return None if current is None else Scaled(current, self.factor)


@dataclass(frozen=True)
class Balanced(Prior):
    """A prior R whose weight follows the matching loss D: w = ``share`` * D(x) / R(x), set anew at the candidate of the
    moment ``updates`` times in a search, at equal parts of its budget.

    What D can be brought down to is 1e-7 on one model and 0.1 on another, so no one weight serves both. This one never
    sees the truth: as long as D falls, the prior gives way, and where D is stuck, it stays. A share of 1 or more would
    let it smooth the images, lower R and so raise its own weight without end. Over several restarts the geometric mean
    counts, so that their losses compare.
    """

    prior: Prior = field(default_factory=lambda: TotalVariation(1.0))
    share: float = 0.5
    updates: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or self.updates < 1:
            raise InvalidCase(
                f"Balanced needs a share between 0 and 1 and at least one update, got {self.share} and {self.updates}; "
                "correct them."
            )

    def __call__(self, images: Tensor) -> Tensor:
        raise NotImplementedError("the prior is weighed against the matching loss of a search; start one")

    def bind(self, observation: UpdateObservation) -> Prior:
        return replace(self, prior=self.prior.bind(observation))

    def factors(self, images: Tensor, losses: Tensor) -> tuple[float, ...]:
        with torch.no_grad():
            ratios = losses.double() / self.prior(images).double()
        usable = ratios[ratios.isfinite() & (ratios > 0)]
        return (self.share * float(usable.log().mean().exp()) if len(usable) else 0.0,)

    def weighed(self, factors: tuple[float, ...]) -> Prior:
        return Scaled(self.prior, *factors)
