"""Rows of a table as numbers that are free: whatever they are, every cell is one that its column can hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.attacks.matching.parametrisations.pixels import Coordinates, Parametrisation
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import Continuous, TableSpace, require
from leakgauge.types import Shape


@dataclass(frozen=True)
class Columns(Parametrisation):
    """Each category by a softmax over its column, each number by a sigmoid between its ends [Vero et al., 2023]."""

    spread: float = 1.0

    def bind(self, observation: UpdateObservation, num_examples: int) -> ColumnLogits:
        del num_examples
        require(observation.space, TableSpace, self)
        assert isinstance(observation.space, TableSpace)
        return ColumnLogits(observation.space, self.spread)


@dataclass(frozen=True)
class ColumnLogits(Coordinates):
    """Gaussian of size ``spread`` at the start."""

    space: TableSpace
    spread: float

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        return self.spread * torch.randn(restarts, num_examples, *shape, generator=generator)

    def shares(self, variables: Tensor) -> Tensor:
        """Of each category its probability, of each number its share of the way between the ends: relaxed rows."""
        parts = zip(self.space.columns, self.space.blocks(variables), strict=True)
        return torch.cat(
            [part.sigmoid() if isinstance(column, Continuous) else part.softmax(dim=-1) for column, part in parts],
            dim=-1,
        )

    def decode(self, variables: Tensor) -> Tensor:
        return self.space.lift(self.shares(variables))
