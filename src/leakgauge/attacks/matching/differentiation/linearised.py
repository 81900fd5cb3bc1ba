"""One gradient and its derivative, whatever the route to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from leakgauge.attacks.matching.engine import Pulled
from leakgauge.types import Batch, ParamTree

Pull = Callable[[dict[str, Tensor]], Pulled]
"""From a direction v in the parameters to the derivatives of <g, v>; uses up v."""


class Wanted(NamedTuple):
    """In what the gradient is to be differentiated, besides the images."""

    params: bool = False
    labels: bool = False


class Linearised(ABC):
    """The gradient of one learner's loss with its derivatives, for any parameters and batch of one shape."""

    @abstractmethod
    def at(self, params: ParamTree, batch: Batch, wanted: Wanted) -> tuple[dict[str, Tensor], Pull]:
        """The gradient, and its derivative."""
