"""What the attacker believes of inputs before seeing an update: one penalty per restart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import InputSpace


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
