"""What the attacker believes of images before seeing an update: one penalty per restart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from leakgauge.protocol.observation import UpdateObservation


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
        return self.weight * lengths.flatten(1).mean(dim=1)


@dataclass(frozen=True)
class AnisotropicTotalVariation(Prior):
    """Weight times (mean |dx| + mean |dy|), the form of Geiping et al. 2020."""

    weight: float = 1e-2

    def __call__(self, images: Tensor) -> Tensor:
        across = (images[..., 1:] - images[..., :-1]).abs().flatten(1).mean(dim=1)
        down = (images[..., 1:, :] - images[..., :-1, :]).abs().flatten(1).mean(dim=1)
        return self.weight * (across + down)


@dataclass(frozen=True)
class PixelNorm(Prior):
    """Weight times the mean squared distance of the pixels from ``centre``."""

    weight: float = 1e-4
    centre: float = 0.5

    def __call__(self, images: Tensor) -> Tensor:
        return self.weight * (images - self.centre).square().flatten(1).mean(dim=1)


@dataclass(frozen=True)
class Starting(Prior):
    """A prior that comes into force when the share ``after`` of the budget is spent."""

    prior: Prior
    after: float

    def __call__(self, images: Tensor) -> Tensor:
        return self.prior(images)

    def bind(self, observation: UpdateObservation) -> Prior:
        return Starting(self.prior.bind(observation), self.after)

    def at(self, spent: float) -> Prior | None:
        return self.prior.at(spent) if spent >= self.after else None
