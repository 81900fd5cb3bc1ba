"""What the optimiser moves, and how it becomes a batch of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor

from leakgauge.types import ImageShape

Box = tuple[float | Tensor, float | Tensor]
"""Bounds of the free variables, the same for all or one for each."""


class Parametrisation(Protocol):
    """``box`` bounds the free variables, or None."""

    @property
    def box(self) -> Box | None: ...

    def start(self, restarts: int, num_examples: int, image_shape: ImageShape, *, generator: Generator) -> Tensor:
        """Free variables, one row per restart."""

    def decode(self, variables: Tensor) -> Tensor:
        """Images ``restarts n c h w``, differentiable."""


@dataclass(frozen=True)
class Pixels:
    """The pixels themselves, kept in [0, 1]; starts at ``mean`` plus Gaussian noise of size ``spread``."""

    mean: float = 0.5
    spread: float = 0.1

    @property
    def box(self) -> Box:
        return (0.0, 1.0)

    def start(self, restarts: int, num_examples: int, image_shape: ImageShape, *, generator: Generator) -> Tensor:
        noise = torch.randn(restarts, num_examples, *image_shape, generator=generator)
        return (self.mean + self.spread * noise).clamp(0, 1)

    def decode(self, variables: Tensor) -> Tensor:
        return variables
