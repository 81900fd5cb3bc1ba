"""How a learning rate falls over a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class RateSchedule(Protocol):
    """The learning rate's factor after a given fraction of the budget."""

    def __call__(self, fraction: float) -> float: ...


@dataclass(frozen=True)
class ConstantRate:
    """The learning rate stays as it is."""

    def __call__(self, fraction: float) -> float:
        del fraction
        return 1.0


@dataclass(frozen=True)
class StepDecay:
    """Multiply by ``factor`` at each of the given fractions [Geiping et al., 2020, appendix C]."""

    at: tuple[float, ...] = (3 / 8, 5 / 8, 7 / 8)
    factor: float = 0.1

    def __call__(self, fraction: float) -> float:
        return self.factor ** sum(fraction >= point for point in self.at)


@dataclass(frozen=True)
class CosineDecay:
    """Half a cosine from 1 to 0."""

    def __call__(self, fraction: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * fraction))


@dataclass(frozen=True)
class WarmUp:
    """Rise linearly from 0 over the first ``share`` of the budget, under another schedule."""

    schedule: RateSchedule = CosineDecay()
    share: float = 0.05

    def __call__(self, fraction: float) -> float:
        return min(1.0, fraction / self.share) * self.schedule(fraction)
