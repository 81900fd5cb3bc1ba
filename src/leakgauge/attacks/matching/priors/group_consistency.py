"""Restarts that found the same image keep one another from straying."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor
from torch.linalg import vector_norm

from leakgauge.attacks.matching.priors.base import Prior
from leakgauge.attacks.matching.priors.registration import register
from leakgauge.space import ImageSpace, InputSpace


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

    @property
    def serves(self) -> type[InputSpace]:
        return ImageSpace

    def __call__(self, images: Tensor) -> Tensor:
        seen = images.detach()
        consensus = seen.mean(dim=0)
        if self.registered:
            consensus = register(seen, consensus).mean(dim=0)
        return self.weight * vector_norm((images - consensus).flatten(1), dim=1)

    def at(self, spent: float) -> Prior:
        return self if spent >= self.after else replace(self, registered=False)
