"""The priors of several victims that are attacked together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks.matching.priors.base import Absent, Prior
from leakgauge.protocol.observation import UpdateObservation


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
