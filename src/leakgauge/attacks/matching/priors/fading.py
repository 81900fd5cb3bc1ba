"""A prior that lets go of images once the update says more of them than the prior does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from leakgauge.attacks.matching.priors.base import Prior, WeighedPrior, side_by_side
from leakgauge.attacks.matching.priors.images import TotalVariation
from leakgauge.errors import InvalidCase
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import InputSpace

_LESS = 0.5
"""A factor is lowered to this share of itself or below, so that a search is not disturbed at every step."""


@dataclass(frozen=True)
class Fading(Prior):
    """Another prior R whose penalty is never more than ``most`` times the matching loss D: R * min(1, most * D / R).

    A prior speeds a search up, then stops it: with a weight that stays, the sum settles where the prior's slope meets
    that of D, short of the image. Here it is in force as given until the update is explained so well that the prior is
    most of what is left, and then gives way along with D; it never comes back. A search that has settled asks for
    ``most`` of 1. Noise that was added to an update keeps D up, and with it the prior. The best restart of a victim
    decides for all of them, so that their losses compare.
    """

    prior: Prior = field(default_factory=TotalVariation)
    most: float = 10.0

    def __post_init__(self) -> None:
        if not self.most >= 1:
            raise InvalidCase(f"Fading needs most >= 1, got {self.most}; below, the prior would be gone at once.")

    @property
    def serves(self) -> type[InputSpace]:
        return self.prior.serves

    def __call__(self, images: Tensor) -> Tensor:
        return self.prior(images)

    def bind(self, observation: UpdateObservation) -> Prior:
        return Fading(self.prior.bind(observation), self.most)

    def at(self, spent: float) -> Prior | None:
        return self.prior.at(spent)


class Fade:
    """A fading prior on the victims of one search, with what is left of it, one factor for each."""

    def __init__(self, fading: Fading, observations: Sequence[UpdateObservation]) -> None:
        self.most = fading.most
        self.priors = tuple(fading.prior.bind(observation) for observation in observations)
        self.weights = (1.0,) * len(self.priors)

    def lowered(self, images: Tensor, losses: Tensor, *, settled: bool) -> tuple[float, ...]:
        """The factors as they should be at images whose matching losses are given, one per restart of each victim."""
        most = 1.0 if settled else self.most
        groups = zip(self.priors, images.chunk(len(self.priors)), losses.chunk(len(self.priors)), strict=True)
        limits = [most * _least_ratio(own, prior(of_own)) for prior, of_own, own in groups]
        return tuple(limit if limit <= _LESS * now else now for limit, now in zip(limits, self.weights, strict=True))

    def at(self, spent: float) -> Prior | None:
        return side_by_side(tuple(map(WeighedPrior, self.priors, self.weights))).at(spent)


def _least_ratio(losses: Tensor, penalties: Tensor) -> float:
    ratios = losses.double().clamp_min(0) / penalties.double()
    usable = ratios[~ratios.isnan()]
    return float(usable.min()) if len(usable) else float("inf")
