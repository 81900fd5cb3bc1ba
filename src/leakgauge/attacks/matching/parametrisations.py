"""What the optimiser moves, and how it becomes a batch of images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Generator, Tensor

from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import ImageShape

Box = tuple[float | Tensor, float | Tensor]
"""Bounds of the free variables, the same for all or one for each."""

Facts = Mapping[str, str | int | float]


class Coordinates(Protocol):
    """The free variables of one batch; ``box`` bounds them, or None, and ``facts`` go into the record."""

    @property
    def box(self) -> Box | None: ...

    @property
    def facts(self) -> Facts: ...

    def start(self, restarts: int, num_examples: int, image_shape: ImageShape, *, generator: Generator) -> Tensor:
        """Free variables, one row per restart."""

    def decode(self, variables: Tensor) -> Tensor:
        """Images ``restarts n c h w``, differentiable."""


class Parametrisation(Protocol):
    """A way to choose coordinates, for any batch of any model."""

    def bind(self, observation: UpdateObservation, num_examples: int) -> Coordinates:
        """The coordinates of a batch of so many images that this observation is of."""


class Successor(Parametrisation, Protocol):
    """A parametrisation that can take up what another has found."""

    def after(self, earlier: Coordinates, variables: Tensor) -> Coordinates:
        """The coordinates whose start is the images, or what makes them, of ``earlier`` at these ``variables``."""


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

    def start(self, restarts: int, num_examples: int, image_shape: ImageShape, *, generator: Generator) -> Tensor:
        noise = torch.randn(restarts, num_examples, *image_shape, generator=generator)
        return (self.mean + self.spread * noise).clamp(0, 1)

    def decode(self, variables: Tensor) -> Tensor:
        return variables


@dataclass(frozen=True, eq=False)
class GivenPixels(Pixels):
    """Pixels that start at given images, one batch per row."""

    images: Tensor = field(default_factory=lambda: torch.empty(0), kw_only=True)

    def start(self, restarts: int, num_examples: int, image_shape: ImageShape, *, generator: Generator) -> Tensor:
        del num_examples, image_shape, generator
        return self.images[:restarts].clone()
