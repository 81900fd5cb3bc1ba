"""The priors of a search under the weights of the moment."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leakgauge.attacks.matching.priors.base import Prior, WeighedPrior, bind_all, side_by_side
from leakgauge.attacks.matching.priors.fading import Fade, Fading
from leakgauge.attacks.matching.priors.following import FollowingPrior
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import require


class Following:
    """A prior that follows the loss on the victims of one search, with its weights of the moment, one for each."""

    def __init__(self, rule: FollowingPrior, observations: Sequence[UpdateObservation]) -> None:
        self.rule = rule
        self.priors = tuple(rule.prior.bind(observation) for observation in observations)
        self.weights = (0.0,) * len(self.priors)

    def weigh(self, images: Tensor, losses: Tensor) -> None:
        groups = zip(self.priors, images.chunk(len(self.priors)), losses.chunk(len(self.priors)), strict=True)
        self.weights = tuple(self.rule.weigh(prior, own, of_own) for prior, own, of_own in groups)

    def at(self, spent: float) -> Prior | None:
        return side_by_side(tuple(map(WeighedPrior, self.priors, self.weights))).at(spent)


class Penalties:
    """The priors of one search on all its victims, those that are weighed under their weights of the moment."""

    def __init__(self, priors: Sequence[Prior | FollowingPrior], observations: Sequence[UpdateObservation]) -> None:
        self._all = [_of_search(one, observations) for one in priors]
        self.followings = [one for one in self._all if isinstance(one, Following)]
        self.fades = [one for one in self._all if isinstance(one, Fade)]

    def at(self, spent: float) -> tuple[Prior, ...]:
        """Those in force when this share of the budget is spent."""
        return tuple(prior for one in self._all if (prior := one.at(spent)) is not None)

    def are_due(self, before: float, now: float) -> bool:
        """Whether one is to be weighed anew between these shares of the budget."""
        return any(one.rule.is_due(before, now) for one in self.followings)

    def weigh(self, images: Tensor, losses: Tensor) -> None:
        """Weigh those that follow the loss at images ``rows n c h w`` whose matching losses are given."""
        for one in self.followings:
            one.weigh(images, losses)

    def faded(self, images: Tensor, losses: Tensor, *, settled: bool) -> list[tuple[float, ...]]:
        """What should be left of the fading ones at such images."""
        with torch.no_grad():
            return [one.lowered(images, losses, settled=settled) for one in self.fades]

    def fade(self, images: Tensor, losses: Tensor, *, settled: bool) -> None:
        for one, weights in zip(self.fades, self.faded(images, losses, settled=settled), strict=True):
            one.weights = weights

    @property
    def weighed(self) -> list[Following | Fade]:
        return [*self.followings, *self.fades]

    @property
    def weights(self) -> list[float]:
        return [weight for one in self.weighed for weight in one.weights]

    def restore(self, weights: list[float]) -> None:
        for one in self.weighed:
            count = len(one.weights)
            one.weights, weights = tuple(weights[:count]), weights[count:]


def _of_search(prior: Prior | FollowingPrior, observations: Sequence[UpdateObservation]) -> Prior | Following | Fade:
    if isinstance(prior, FollowingPrior):
        return Following(prior, observations)
    if isinstance(prior, Fading):
        require(observations[0].space, prior.serves, prior)
        return Fade(prior, observations)
    return bind_all(prior, observations)
