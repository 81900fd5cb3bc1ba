"""What a metric is: one score per private example or one per batch, NaN where nothing was measured."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from leakgauge.metrics.alignment import Comparison


class Metric(Protocol):
    """Scores each private example in float64, shape n, or the batch as a whole, shape 1; missing is NaN, never zero.

    Implementations are frozen dataclasses, so that ``repr`` evaluates back and pickle carries them to a worker.
    """

    @property
    def name(self) -> str:
        """The key of its scores in a record."""

    @property
    def higher_is_leakier(self) -> bool:
        """Whether a larger score gives more away."""

    @property
    def unit(self) -> str:
        """The unit shown beside a score, empty for a plain number."""

    @property
    def binary(self) -> bool:
        """Whether each score is 0 or 1, so that the mean is a proportion."""

    def __call__(self, comparison: Comparison) -> Tensor: ...
