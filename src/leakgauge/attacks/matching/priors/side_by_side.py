"""The priors of several victims that are attacked together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks.matching.priors.base import Absent, Prior
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import require


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


def side_by_side(priors: tuple[Prior, ...]) -> Prior:
    """One prior for rows that belong to these in turn, equally many to each."""
    return priors[0] if len(priors) == 1 else SideBySide(priors)


def bind_all(prior: Prior, observations: Sequence[UpdateObservation]) -> Prior:
    """The prior for rows that belong to these observations in turn, equally many to each."""
    require(observations[0].space, prior.serves, prior)
    return side_by_side(tuple(prior.bind(observation) for observation in observations))
