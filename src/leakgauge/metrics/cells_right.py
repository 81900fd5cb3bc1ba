from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric
from leakgauge.space import Column, Continuous, TableSpace


@final
@dataclass(frozen=True)
class CellsRight(Metric):
    """The share of a row's cells that came back right: a number within ``tolerance`` of its column's range, a category
    if it is the same.

    >>> space = TableSpace((Continuous("age", 0, 100), Continuous("height", 0, 2)))
    >>> rows = torch.tensor([[40.0, 1.8]])
    >>> CellsRight()(Comparison(rows, rows + torch.tensor([[0.9, 0.1]]), None, torch.zeros(1), None, space=space))
    tensor([0.5000], dtype=torch.float64)
    """

    tolerance: float = 0.01

    name, title, heading = "cells_right", "Cells right", "cells\nright"
    serves = Kind.ROWS

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise InvalidCase(f"CellsRight needs a tolerance of at least 0 and below 1, got {self.tolerance}.")

    def __call__(self, comparison: Comparison) -> Tensor:
        space = comparison.space
        if not isinstance(space, TableSpace):
            raise InvalidCase(f"CellsRight compares rows of a table, and these are {space.kinds}; leave it out.")
        right = self.cells(space, comparison.originals, comparison.reconstructions)
        return torch.where(comparison.measured, right.double().mean(dim=1), torch.nan)

    def cells(self, space: TableSpace, originals: Tensor, found: Tensor) -> Tensor:
        """Whether each cell of each row is right."""
        parts = zip(space.columns, space.blocks(originals.double()), space.blocks(found.double()), strict=True)
        return torch.stack([self._right(*part) for part in parts], dim=1)

    def _right(self, column: Column, original: Tensor, found: Tensor) -> Tensor:
        if isinstance(column, Continuous):
            return (original - found).abs().amax(dim=1) <= self.tolerance * (column.high - column.low)
        return original.argmax(dim=1) == found.argmax(dim=1)
