"""How the learning rate falls over a training; a schedule maps the share of the training that is over to a factor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from leakgauge.errors import InvalidCase


class Schedule(Protocol):
    """Frozen dataclasses whose fields are their configuration."""

    def factor(self, share: float) -> float:
        """What the learning rate is multiplied by when ``share`` in [0, 1) of the steps have been made."""


@dataclass(frozen=True)
class Constant:
    """The learning rate stays as it is."""

    def factor(self, share: float) -> float:
        del share
        return 1.0


@dataclass(frozen=True)
class Step:
    """``by`` to the power of floor(share / every); the default falls tenfold at each quarter.

    Over 200 epochs that is every 50 [Huang et al., 2021, App. A.1].

    >>> [Step().factor(share) for share in (0.0, 0.24, 0.25)]
    [1.0, 1.0, 0.1]
    """

    every: float = 0.25
    by: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.every <= 1 or not 0 < self.by <= 1:
            raise InvalidCase(f"Step(every, by) needs both in (0, 1], got {self.every} and {self.by}; correct them.")

    def factor(self, share: float) -> float:
        # Whole steps as shares, such as 3 / 60, may lie a rounding below a multiple of `every`.
        return self.by ** math.floor(share / self.every + 1e-9)


@dataclass(frozen=True)
class Milestones:
    """``by`` for each of the shares ``at`` that is over; over 200 epochs, at 100 and 150 [Huang et al., 2020, App. E].

    >>> [Milestones().factor(share) for share in (0.0, 0.5, 0.6)]
    [1.0, 0.1, 0.1]
    """

    at: tuple[float, ...] = (0.5, 0.75)
    by: float = 0.1

    def factor(self, share: float) -> float:
        return float(self.by ** sum(share >= one - 1e-9 for one in self.at))


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 to 0: (1 + cos(pi share)) / 2 [Loshchilov & Hutter, 2017]."""

    def factor(self, share: float) -> float:
        return (1 + math.cos(math.pi * share)) / 2


SCHEDULES: Mapping[str, Callable[..., Any]] = {"constant": Constant, "step": Step, "cosine": Cosine}
