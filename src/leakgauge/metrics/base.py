"""What a metric is: a score, and everything that is needed to show, sort, limit and judge it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from leakgauge.metrics.alignment import Comparison
from leakgauge.space import ImageSpace, InputSpace, TableSpace, TokenSpace


class Kind(Enum):
    """What a metric compares."""

    IMAGES = "images"
    ROWS = "rows of a table"
    TEXTS = "texts"
    INPUTS = "inputs of any kind"
    LABELS = "labels"
    NAMES = "public images that were named"

    def fits(self, space: InputSpace) -> bool:
        """Whether it can be compared where inputs live in this space."""
        served = {Kind.IMAGES: ImageSpace, Kind.ROWS: TableSpace, Kind.TEXTS: TokenSpace}
        return isinstance(space, served.get(self, InputSpace))


class Metric(ABC):
    """Scores each private example in float64, shape n, or the batch as a whole, shape 1; missing is NaN, never zero.

    Subclasses are frozen dataclasses that can be made without arguments, so that a metric can be described without what
    it needs to measure, ``repr`` evaluates back and pickle carries it to a worker.
    """

    name: ClassVar[str]
    """The key of its scores in a record; one name stands for one quantity."""
    title: ClassVar[str]
    """What a page calls it."""
    heading: ClassVar[str] = ""
    """Its column in the console's narrow table; without one it is left to the page and the JSON."""
    unit: ClassVar[str] = ""
    higher_is_leakier: ClassVar[bool] = True
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0
    """No score lies outside [low, high], a share unless said otherwise; infinite where there is no bound."""
    exact: ClassVar[float] = 1.0
    """The score of an exact match."""
    serves: ClassVar[Kind]
    binary: ClassVar[bool] = False
    """Whether each score is 0 or 1, so that the mean is a proportion."""
    per_batch: ClassVar[bool] = False
    """Whether a batch has one score, and not each of its examples."""
    digits: ClassVar[int] = 3
    """Digits after the point where there is room for them."""
    standard: ClassVar[bool] = True
    """Whether every audit measures it; the others are measured where they are asked for."""

    @abstractmethod
    def __call__(self, comparison: Comparison) -> Tensor: ...

    @property
    def lacks(self) -> str | None:
        """What it needs to measure and was not given, in words."""
        return None

    def with_weights(self, folder: Path) -> Metric:
        """Itself, with the learned weights that it needs read from a folder."""
        del folder
        return self

    def show(self, score: float, *, digits: int | None = None) -> str:
        """A score in words, with as many digits as the metric carries or as there is room for, and its unit."""
        shown = self.digits if digits is None else min(digits, self.digits)
        return f"{score:z.{shown}f} {self.unit}".strip()

    def leakage(self, score: float) -> float:
        """The score with the sign that makes more leakier."""
        return score if self.higher_is_leakier else -score
