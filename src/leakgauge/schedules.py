"""How a learning rate changes while a budget of steps or time is spent, in attacks and in trainings."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from leakgauge.errors import InvalidCase


class Schedule(ABC):
    """The learning rate's factor after a given fraction of the budget."""

    @abstractmethod
    def __call__(self, fraction: float) -> float: ...


@dataclass(frozen=True)
class ConstantRate(Schedule):
    """The learning rate stays as it is."""

    def __call__(self, fraction: float) -> float:
        del fraction
        return 1.0


@dataclass(frozen=True)
class StepDecay(Schedule):
    """Multiply by ``factor`` at each of the given fractions [Geiping et al., 2020, appendix C].

    >>> [StepDecay(at=(0.5, 0.75))(fraction) for fraction in (0.0, 0.5, 0.6)]
    [1.0, 0.1, 0.1]
    """

    at: tuple[float, ...] = (3 / 8, 5 / 8, 7 / 8)
    factor: float = 0.1

    def __call__(self, fraction: float) -> float:
        return float(self.factor ** sum(fraction >= point for point in self.at))


@dataclass(frozen=True)
class RegularDecay(Schedule):
    """``by`` to the power of floor(fraction / every); the default falls tenfold at each quarter.

    Over 200 epochs that is every 50 [Huang et al., 2021, App. A.1].

    >>> [RegularDecay()(fraction) for fraction in (0.0, 0.24, 0.25)]
    [1.0, 1.0, 0.1]
    """

    every: float = 0.25
    by: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.every <= 1 or not 0 < self.by <= 1:
            raise InvalidCase(
                f"RegularDecay(every, by) needs both in (0, 1], got {self.every} and {self.by}; correct them."
            )

    def __call__(self, fraction: float) -> float:
        # Whole steps as fractions, such as 3 / 60, may lie a rounding below a multiple of `every`.
        return self.by ** math.floor(fraction / self.every + 1e-9)


@dataclass(frozen=True)
class CosineDecay(Schedule):
    """Half a cosine from 1 to 0: (1 + cos(pi fraction)) / 2 [Loshchilov & Hutter, 2017]."""

    def __call__(self, fraction: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * fraction))


@dataclass(frozen=True)
class WarmUp(Schedule):
    """Rise linearly from 0 over the first ``share`` of the budget, under another schedule."""

    schedule: Schedule = CosineDecay()
    share: float = 0.05

    def __call__(self, fraction: float) -> float:
        return min(1.0, fraction / self.share) * self.schedule(fraction)
