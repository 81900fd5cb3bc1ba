"""A prior that is weighed against the matching loss, and the priors of a search under the weights of the moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from leakgauge.attacks.matching.priors.base import Prior, WeighedPrior, bind_all, side_by_side
from leakgauge.attacks.matching.priors.fading import Fade, Fading
from leakgauge.attacks.matching.priors.images import TotalVariation
from leakgauge.errors import InvalidCase
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import require


@dataclass(frozen=True)
class Balanced:
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

    def weigh(self, prior: Prior, images: Tensor, losses: Tensor) -> float:
        """The weight of the bound prior at images whose matching losses are given, one per restart."""
        with torch.no_grad():
            ratios = losses.double() / prior(images).double()
        usable = ratios[ratios.isfinite() & (ratios > 0)]
        return self.share * float(usable.log().mean().exp()) if len(usable) else 0.0

    def is_due(self, before: float, now: float) -> bool:
        """Whether another of the parts of the budget begins between these shares of it."""
        return int(now * self.updates) > int(before * self.updates)


class Balance:
    """A balanced prior on the victims of one search, with its weights of the moment, one for each."""

    def __init__(self, balanced: Balanced, observations: Sequence[UpdateObservation]) -> None:
        self.balanced = balanced
        self.priors = tuple(balanced.prior.bind(observation) for observation in observations)
        self.weights = (0.0,) * len(self.priors)

    def weigh(self, images: Tensor, losses: Tensor) -> None:
        groups = zip(self.priors, images.chunk(len(self.priors)), losses.chunk(len(self.priors)), strict=True)
        self.weights = tuple(self.balanced.weigh(prior, own, of_own) for prior, own, of_own in groups)

    def at(self, spent: float) -> Prior | None:
        return side_by_side(tuple(map(WeighedPrior, self.priors, self.weights))).at(spent)


class Penalties:
    """The priors of one search on all its victims, those that are weighed under their weights of the moment."""

    def __init__(self, priors: Sequence[Prior | Balanced], observations: Sequence[UpdateObservation]) -> None:
        self._all = [_of_search(one, observations) for one in priors]
        self.balances = [one for one in self._all if isinstance(one, Balance)]
        self.fades = [one for one in self._all if isinstance(one, Fade)]

    def at(self, spent: float) -> tuple[Prior, ...]:
        """Those in force when this share of the budget is spent."""
        return tuple(prior for one in self._all if (prior := one.at(spent)) is not None)

    def are_due(self, before: float, now: float) -> bool:
        """Whether one is to be weighed anew between these shares of the budget."""
        return any(one.balanced.is_due(before, now) for one in self.balances)

    def weigh(self, images: Tensor, losses: Tensor) -> None:
        """Weigh the balanced ones at images ``rows n c h w`` whose matching losses are given."""
        for one in self.balances:
            one.weigh(images, losses)

    def faded(self, images: Tensor, losses: Tensor, *, settled: bool) -> list[tuple[float, ...]]:
        """What should be left of the fading ones at such images."""
        with torch.no_grad():
            return [one.lowered(images, losses, settled=settled) for one in self.fades]

    def fade(self, images: Tensor, losses: Tensor, *, settled: bool) -> None:
        for one, weights in zip(self.fades, self.faded(images, losses, settled=settled), strict=True):
            one.weights = weights

    @property
    def weighed(self) -> list[Balance | Fade]:
        return [*self.balances, *self.fades]

    @property
    def weights(self) -> list[float]:
        return [weight for one in self.weighed for weight in one.weights]

    def restore(self, weights: list[float]) -> None:
        for one in self.weighed:
            count = len(one.weights)
            one.weights, weights = tuple(weights[:count]), weights[count:]


def _of_search(prior: Prior | Balanced, observations: Sequence[UpdateObservation]) -> Prior | Balance | Fade:
    if isinstance(prior, Balanced):
        return Balance(prior, observations)
    if isinstance(prior, Fading):
        require(observations[0].space, prior.serves, prior)
        return Fade(prior, observations)
    return bind_all(prior, observations)
