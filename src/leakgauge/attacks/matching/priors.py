"""What the attacker believes of images before seeing an update: one penalty per restart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.linalg import vector_norm

from leakgauge.attacks.matching.registration import registered
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import CENTRE
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import BatchStatistics, ModelState, ParamTree


class Prior(ABC):
    """Maps images ``restarts n c h w`` to one penalty per restart."""

    @abstractmethod
    def __call__(self, images: Tensor) -> Tensor: ...

    def bind(self, observation: UpdateObservation) -> Prior:
        """The prior for this observation, for one that looks at the model or at what is known of the batch."""
        del observation
        return self

    def at(self, spent: float) -> Prior | None:
        """The prior when this share of the budget is spent; None = not in force."""
        del spent
        return self

    @property
    def updates(self) -> int:
        """How often in a search its weight is set anew by what is matched; 0 = never, it is what it is."""
        return 0

    def factors(self, images: Tensor, losses: Tensor) -> tuple[float, ...]:
        """Its weights at ``images`` whose matching losses are given, one per restart; none for one that has its own."""
        del images, losses
        return ()

    def weighed(self, factors: tuple[float, ...]) -> Prior:
        """The prior under these weights."""
        del factors
        return self


@dataclass(frozen=True)
class TotalVariation(Prior):
    """Weight times the mean length of the pixel gradient, sqrt(dx^2 + dy^2 + smoothing) [Rudin et al., 1992].

    The smoothing keeps the penalty differentiable where the image is flat, which quasi-Newton steps need.
    """

    weight: float = 1e-3
    smoothing: float = 1e-6

    def __call__(self, images: Tensor) -> Tensor:
        across = images[..., :-1, 1:] - images[..., :-1, :-1]
        down = images[..., 1:, :-1] - images[..., :-1, :-1]
        lengths = (across.square() + down.square() + self.smoothing).sqrt()
        return self.weight * _means(lengths)


@dataclass(frozen=True)
class AnisotropicTotalVariation(Prior):
    """Weight times (mean |dx| + mean |dy|), the form of Geiping et al. 2020."""

    weight: float = 1e-2

    def __call__(self, images: Tensor) -> Tensor:
        across = (images[..., 1:] - images[..., :-1]).abs()
        down = (images[..., 1:, :] - images[..., :-1, :]).abs()
        return self.weight * (_means(across) + _means(down))


def _means(differences: Tensor) -> Tensor:
    """For each restart; 0 where an image is one pixel wide or high and has no neighbours to differ from."""
    return differences.flatten(1).sum(dim=1) / max(1, differences[0].numel())


@dataclass(frozen=True)
class SignedTotalVariation(Prior):
    """Total variation of |x - 1/2|: what a mask of random signs leaves smooth [Huang et al., 2021, InstaHide]."""

    weight: float = 1e-3
    smoothing: float = 1e-6

    def __call__(self, images: Tensor) -> Tensor:
        return TotalVariation(self.weight, self.smoothing)((images - CENTRE).abs())


@dataclass(frozen=True)
class PixelNorm(Prior):
    """Weight times the mean squared distance of the pixels from ``centre``."""

    weight: float = 1e-4
    centre: float = 0.5

    def __call__(self, images: Tensor) -> Tensor:
        return self.weight * (images - self.centre).square().flatten(1).mean(dim=1)


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


@dataclass(frozen=True)
class Starting(Prior):
    """A prior that comes into force when the share ``after`` of the budget is spent."""

    prior: Prior
    after: float

    def __call__(self, images: Tensor) -> Tensor:
        return self.prior(images)

    def bind(self, observation: UpdateObservation) -> Prior:
        return Starting(self.prior.bind(observation), self.after)

    @property
    def updates(self) -> int:
        return self.prior.updates

    def factors(self, images: Tensor, losses: Tensor) -> tuple[float, ...]:
        return self.prior.factors(images, losses)

    def weighed(self, factors: tuple[float, ...]) -> Prior:
        return Starting(self.prior.weighed(factors), self.after)

    def at(self, spent: float) -> Prior | None:
        return self.prior.at(spent) if spent >= self.after else None


@dataclass(frozen=True)
class BatchNormStatistics(Prior):
    """Weight times the sum over BatchNorm layers of |mean_l(x) - mean_l|_2 + |var_l(x) - var_l|_2.

    R_BN of Yin et al. [2021], over the inputs of the layers. The targets are the private batch's own statistics
    where the threat model gives them, else the running ones the server sent; ``first`` multiplies the first layer's
    part. On a model without BatchNorm the prior is never in force.
    """

    weight: float = 1.0
    first: float = 1.0

    def __call__(self, images: Tensor) -> Tensor:
        raise NotImplementedError("the prior compares with the statistics of an observation; bind it first")

    def bind(self, observation: UpdateObservation) -> Prior:
        learner, state = observation.learner, observation.state
        target = observation.batch_norm.statistics or _running_statistics(learner, state)
        if not target.mean:
            return Absent()
        return _BoundStatistics(self.weight, self.first, learner, state, target)


@dataclass(frozen=True, eq=False)
class _BoundStatistics(Prior):
    """The statistics of each candidate batch against one target; two are equal only if they are one object."""

    weight: float
    first: float
    learner: Learner
    state: ModelState
    target: BatchStatistics

    def __call__(self, images: Tensor) -> Tensor:
        # One restart after another: the statistics are noted by hooks, which do not compose with vmap.
        return self.weight * torch.stack([self._distance(batch) for batch in images])

    def _distance(self, batch: Tensor) -> Tensor:
        own = self.learner.batch_statistics(self.state, batch)  # in the order of execution
        parts = [
            vector_norm(own.mean[name] - self.target.mean[name])
            + vector_norm(own.variance[name] - self.target.variance[name])
            for name in own.mean
            if name in self.target.mean
        ]
        return torch.stack([self.first * parts[0], *parts[1:]]).sum()


def _running_statistics(learner: Learner, state: ModelState) -> BatchStatistics:
    def held(buffer: str) -> ParamTree:
        keys = {name: f"{name}.{buffer}".lstrip(".") for name in learner.batch_norm_layers()}
        return {name: state.buffers[key] for name, key in keys.items() if key in state.buffers}

    return BatchStatistics(held("running_mean"), held("running_var"))


@dataclass(frozen=True)
class Absent(Prior):
    """What a prior that does not apply to the model is bound to: never in force."""

    def __call__(self, images: Tensor) -> Tensor:
        return images.new_zeros(len(images))

    def at(self, spent: float) -> None:
        del spent


@dataclass(frozen=True)
class GroupConsistency(Prior):
    """Weight times |x_g - E|_2, E = the mean over all restarts g of x_g registered to their plain mean.

    R_group of Yin et al. [2021]: restarts that found the same image keep one another from straying. Each image
    is registered by the whole-pixel circular translation that brings it nearest to the mean, where the paper fits a
    flow by RANSAC. ``registered=False``, and any time before the share ``after`` of the budget, is the paper's "lazy"
    form, E = plain mean. Image i is compared with image i: restarts that found examples of one class in different
    orders are not brought into one.
    """

    weight: float = 0.1
    registered: bool = True
    after: float = 0.25

    def __call__(self, images: Tensor) -> Tensor:
        seen = images.detach()
        consensus = seen.mean(dim=0)
        if self.registered:
            consensus = registered(seen, consensus).mean(dim=0)
        return self.weight * vector_norm((images - consensus).flatten(1), dim=1)

    def at(self, spent: float) -> Prior:
        return self if spent >= self.after else replace(self, registered=False)


@dataclass(frozen=True)
class SideBySide(Prior):
    """Rows in as many equal groups as there are priors, each group with its own: several victims attacked together."""

    priors: tuple[Prior, ...]

    def __call__(self, images: Tensor) -> Tensor:
        groups = images.chunk(len(self.priors))
        return torch.cat([prior(group) for prior, group in zip(self.priors, groups, strict=True)])

    @property
    def updates(self) -> int:
        return max(prior.updates for prior in self.priors)

    def factors(self, images: Tensor, losses: Tensor) -> tuple[float, ...]:
        groups = zip(self.priors, images.chunk(len(self.priors)), losses.chunk(len(self.priors)), strict=True)
        return tuple(factor for prior, own, loss in groups for factor in prior.factors(own, loss))

    def weighed(self, factors: tuple[float, ...]) -> Prior:
        each = len(factors) // len(self.priors)
        parts = (factors[index * each : (index + 1) * each] for index in range(len(self.priors)))
        return SideBySide(tuple(prior.weighed(own) for prior, own in zip(self.priors, parts)))

    def at(self, spent: float) -> Prior | None:
        current = [prior.at(spent) for prior in self.priors]
        return SideBySide(tuple(prior or Absent() for prior in current)) if any(current) else None


def bind_all(prior: Prior, observations: Sequence[UpdateObservation]) -> Prior:
    """The prior for rows that belong to these observations in turn, equally many to each."""
    bound = tuple(prior.bind(observation) for observation in observations)
    return bound[0] if len(bound) == 1 else SideBySide(bound)
