"""What a prior is that is weighed against the matching loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from leakgauge.attacks.matching.priors.base import Prior
from leakgauge.attacks.matching.priors.images import TotalVariation
from leakgauge.errors import InvalidCase


@dataclass(frozen=True)
class FollowingPrior(ABC):
    """A prior R whose weight follows the matching loss D: w = s(D) * D(x) / R(x), so that s(D) is what it is of D.

    s(D) is at most ``share``; the weight is set anew at the candidate of the moment ``updates`` times in a search, at
    equal parts of its budget.

    A share of 1 or more would let it smooth the images, lower R and so raise its own weight without end. Over several
    restarts the geometric mean counts, so that their losses compare.
    """

    prior: Prior = field(default_factory=lambda: TotalVariation(1.0))
    share: float = 0.5
    updates: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or self.updates < 1:
            raise InvalidCase(
                f"{type(self).__name__} needs a share between 0 and 1 and at least one update, got {self.share} and "
                f"{self.updates}; correct them."
            )

    @abstractmethod
    def shares(self, losses: Tensor) -> Tensor:
        """What the prior is of each matching loss."""

    def weigh(self, prior: Prior, images: Tensor, losses: Tensor) -> float:
        """The weight of the bound prior at images whose matching losses are given, one per restart."""
        losses = losses.double()
        with torch.no_grad():
            ratios = self.shares(losses) * losses / prior(images).double()
        usable = ratios[ratios.isfinite() & (ratios > 0)]
        return float(usable.log().mean().exp()) if len(usable) else 0.0

    def is_due(self, before: float, now: float) -> bool:
        """Whether another of the parts of the budget begins between these shares of it."""
        return int(now * self.updates) > int(before * self.updates)
