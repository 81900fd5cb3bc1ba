"""A prior that is a share of a large matching loss, and gives way faster than a small one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from leakgauge.attacks.matching.priors.following import FollowingPrior
from leakgauge.errors import InvalidCase


@dataclass(frozen=True)
class Yielding(FollowingPrior):
    """s(D) = ``share`` * min(1, D / ``explained``).

    One image through an untrained network is explained to D = 1e-3, and a prior that is half of that blurs it; through
    a trained one D stays above 0.02, and a prior that suits the first leaves noise. So the share falls with D.
    """

    explained: float = 0.03

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.explained > 0:
            raise InvalidCase(f"Yielding needs explained > 0, got {self.explained}; a share that stays is Balanced.")

    def shares(self, losses: Tensor) -> Tensor:
        return self.share * (losses / self.explained).clamp(max=1)
