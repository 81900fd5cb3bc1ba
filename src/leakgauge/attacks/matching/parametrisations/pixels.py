"""The pixels themselves."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from leakgauge.attacks.matching.parametrisations.base import Box, Coordinates, Facts
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import Shape


@dataclass(frozen=True)
class Pixels:
    """The pixels themselves, kept in [0, 1]; starts at ``mean`` plus Gaussian noise of size ``spread``."""

    mean: float = 0.5
    spread: float = 0.1

    def bind(self, observation: UpdateObservation, num_examples: int) -> Pixels:
        del observation, num_examples
        return self

    def after(self, earlier: Coordinates, variables: Tensor) -> GivenPixels:
        with torch.no_grad():
            return GivenPixels(images=earlier.decode(variables).clamp(0, 1))

    @property
    def box(self) -> Box:
        return (0.0, 1.0)

    @property
    def facts(self) -> Facts:
        return {}

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        noise = torch.randn(restarts, num_examples, *shape, generator=generator)
        return (self.mean + self.spread * noise).clamp(0, 1)

    def decode(self, variables: Tensor) -> Tensor:
        return variables


@dataclass(frozen=True, eq=False)
class GivenPixels(Pixels):
    """Pixels that start at given images, one batch per row."""

    images: Tensor = field(default_factory=lambda: torch.empty(0), kw_only=True)

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        del num_examples, shape, generator
        return self.images[:restarts].clone()
