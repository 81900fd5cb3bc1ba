"""A prior that joins late."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from leakgauge.attacks.matching.priors.base import Prior
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import InputSpace


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
