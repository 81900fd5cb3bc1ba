"""The pixels themselves."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.attacks.matching.parametrisations.base import Box, Coordinates, Successor
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import Shape


class _InBox(Coordinates, ABC):
    """Pixels move themselves, in [0, 1]."""

    @property
    def box(self) -> Box:
        return (0.0, 1.0)

    def decode(self, variables: Tensor) -> Tensor:
        return variables


@dataclass(frozen=True)
class Pixels(Successor, _InBox):
    """The pixels themselves, kept in [0, 1]; starts at ``mean`` plus Gaussian noise of size ``spread``."""

    mean: float = 0.5
    spread: float = 0.1

    def bind(self, observation: UpdateObservation, num_examples: int) -> Pixels:
        del observation, num_examples
        return self

    def after(self, earlier: Coordinates, variables: Tensor) -> GivenPixels:
        with torch.no_grad():
            return GivenPixels(earlier.decode(variables).clamp(0, 1))

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        noise = torch.randn(restarts, num_examples, *shape, generator=generator)
        return (self.mean + self.spread * noise).clamp(0, 1)


@dataclass(frozen=True, eq=False)
class GivenPixels(_InBox):
    """Pixels that start at given images, one batch per row."""

    images: Tensor

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        del num_examples, shape, generator
        return self.images[:restarts].clone()
