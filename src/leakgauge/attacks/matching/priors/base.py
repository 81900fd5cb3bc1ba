"""What the attacker believes of inputs before seeing an update: one penalty per restart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import InputSpace, require


class Prior(ABC):
    """Maps inputs, ``restarts n`` of them, to one penalty per restart."""

    @property
    def serves(self) -> type[InputSpace]:
        """The spaces whose inputs it can judge."""
        return InputSpace

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


@dataclass(frozen=True)
class Absent(Prior):
    """What a prior that does not apply to the model is bound to: never in force."""

    def __call__(self, images: Tensor) -> Tensor:
        return images.new_zeros(len(images))

    def at(self, spent: float) -> None:
        del spent


@dataclass(frozen=True)
class Starting(Prior):
    """A prior that comes into force when the share ``after`` of the budget is spent."""

    prior: Prior
    after: float

    @property
    def serves(self) -> type[InputSpace]:
        return self.prior.serves

    def __call__(self, images: Tensor) -> Tensor:
        return self.prior(images)

    def bind(self, observation: UpdateObservation) -> Prior:
        return Starting(self.prior.bind(observation), self.after)

    def at(self, spent: float) -> Prior | None:
        return self.prior.at(spent) if spent >= self.after else None


@dataclass(frozen=True)
class WeighedPrior(Prior):
    """Another prior times ``factor``."""

    prior: Prior
    factor: float

    def __call__(self, images: Tensor) -> Tensor:
        return self.factor * self.prior(images)

    def at(self, spent: float) -> Prior | None:
        current = self.prior.at(spent)
        return None if current is None else WeighedPrior(current, self.factor)


@dataclass(frozen=True)
class SideBySide(Prior):
    """Rows in as many equal groups as there are priors, each group with its own: several victims attacked together."""

    priors: tuple[Prior, ...]

    def __call__(self, images: Tensor) -> Tensor:
        groups = images.chunk(len(self.priors))
        return torch.cat([prior(group) for prior, group in zip(self.priors, groups, strict=True)])

    def at(self, spent: float) -> Prior | None:
        current = [prior.at(spent) for prior in self.priors]
        return SideBySide(tuple(prior or Absent() for prior in current)) if any(current) else None


def unweighed(prior: Prior) -> Prior:
    """The prior without the weights of the moment."""
    if isinstance(prior, WeighedPrior):
        return unweighed(prior.prior)
    return SideBySide(tuple(map(unweighed, prior.priors))) if isinstance(prior, SideBySide) else prior


def side_by_side(priors: tuple[Prior, ...]) -> Prior:
    """One prior for rows that belong to these in turn, equally many to each."""
    return priors[0] if len(priors) == 1 else SideBySide(priors)


def bind_all(prior: Prior, observations: Sequence[UpdateObservation]) -> Prior:
    """The prior for rows that belong to these observations in turn, equally many to each."""
    require(observations[0].space, prior.serves, prior)
    return side_by_side(tuple(prior.bind(observation) for observation in observations))
