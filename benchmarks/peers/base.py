"""What a peer is given, and what it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge.errors import InvalidCase
from leakgauge.types import Shape


@dataclass(frozen=True)
class Target:
    """All that an attacker sees: the network as peers want it, one gradient and its labels. There is no truth in it."""

    module: nn.Module
    """In eval mode; it takes normalised pixels, in which the peers' learning rates and priors are meant."""
    gradient: tuple[Tensor, ...]
    """In the order of the module's parameters."""
    labels: Tensor
    shape: Shape
    mean: Tensor
    std: Tensor

    def pixels(self, normalised: Tensor) -> Tensor:
        """In [0, 1], as LeakGauge scores them."""
        return (normalised.detach() * self.std + self.mean).clamp(0, 1)


def per_channel(values: Sequence[float]) -> Tensor:
    return torch.tensor(tuple(values)).reshape(-1, 1, 1)


@dataclass(frozen=True)
class Peer(ABC):
    """A program of others, run by its own interface with its own settings; only the number of its steps is ours."""

    checkout: Path

    @property
    @abstractmethod
    def package(self) -> str:
        """The folder of the checkout that is imported."""

    @abstractmethod
    def attack(self, target: Target, steps: int) -> Tensor:
        """Images in [0, 1] after so many steps."""

    def check(self) -> None:
        if not (self.checkout / self.package).is_dir():
            raise InvalidCase(
                f"There is no folder {self.package} in {self.checkout}; give the folder that the project was cloned "
                "or unpacked into."
            )
