"""What the optimiser moves and how it becomes a batch: the inputs themselves, unless said otherwise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import ImageSpace, InputSpace, TokenSpace
from leakgauge.types import Shape

Box = tuple[float | Tensor, float | Tensor]
"""Bounds of the free variables, the same for all or one for each."""

Facts = Mapping[str, str | int | float]


class Coordinates(ABC):
    """The free variables of one batch; ``box`` bounds them, or None, and ``facts`` go into the record."""

    @property
    def box(self) -> Box | None:
        return None

    @property
    def facts(self) -> Facts:
        return {}

    @abstractmethod
    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        """Free variables, one row per restart."""

    @abstractmethod
    def decode(self, variables: Tensor) -> Tensor:
        """Images ``restarts n c h w``, differentiable."""


class Parametrisation(ABC):
    """A way to choose coordinates, for any batch of any model."""

    @abstractmethod
    def bind(self, observation: UpdateObservation, num_examples: int) -> Coordinates:
        """The coordinates of a batch of so many images that this observation is of."""


class Successor(Parametrisation):
    """A parametrisation that can take up what another has found."""

    @abstractmethod
    def after(self, earlier: Coordinates, variables: Tensor) -> Coordinates:
        """The coordinates whose start is the images, or what makes them, of ``earlier`` at these ``variables``."""


class _InBox(Coordinates, ABC):
    """Inputs move themselves, relaxed to [0, 1]."""

    @property
    def box(self) -> Box:
        return (0.0, 1.0)

    def decode(self, variables: Tensor) -> Tensor:
        return variables


@dataclass(frozen=True)
class Pixels(Successor, _InBox):
    """The inputs themselves, relaxed and kept in [0, 1]; starts at ``mean`` plus Gaussian noise of size ``spread``."""

    mean: float = 0.5
    spread: float = 0.1

    def bind(self, observation: UpdateObservation, num_examples: int) -> Coordinates:
        del num_examples
        space = observation.space
        if isinstance(space, TokenSpace):
            raise UnsupportedModel(
                f"{type(self).__name__} moves numbers, and the tokens of texts are names; use token_spans or tag."
            )
        return self if isinstance(space, ImageSpace) else Entries(space, self.mean, self.spread)

    def after(self, earlier: Coordinates, variables: Tensor) -> GivenPixels:
        with torch.no_grad():
            return GivenPixels(earlier.decode(variables).clamp(0, 1))

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        noise = torch.randn(restarts, num_examples, *shape, generator=generator)
        return (self.mean + self.spread * noise).clamp(0, 1)


@dataclass(frozen=True)
class Entries(_InBox):
    """The entries of inputs that are no images, each as its share of the way from its least value to its greatest."""

    space: InputSpace
    mean: float
    spread: float

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        return Pixels(self.mean, self.spread).start(restarts, num_examples, shape, generator=generator)

    def decode(self, variables: Tensor) -> Tensor:
        return self.space.lift(variables)


@dataclass(frozen=True, eq=False)
class GivenPixels(_InBox):
    """Pixels that start at given images, one batch per row."""

    images: Tensor

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        del num_examples, shape, generator
        return self.images[:restarts].clone()
