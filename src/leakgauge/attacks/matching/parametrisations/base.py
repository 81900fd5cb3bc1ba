"""What the optimiser moves, and how it becomes a batch of images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Generator, Tensor

from leakgauge.protocol.observation import UpdateObservation
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
