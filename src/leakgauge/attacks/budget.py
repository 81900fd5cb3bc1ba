"""How much work an attack may spend."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeVar

from leakgauge.errors import InvalidCase

T = TypeVar("T")
Clock = Literal["wall", "cpu"]


@dataclass(frozen=True)
class Budget:
    """At most ``steps`` steps and at most ``seconds`` seconds; schedules run on the share that is spent.

    With steps alone a run gives the same digits again; with seconds it depends on the machine, and the record says how
    many steps were made. ``clock``: "wall" as people wait, or "cpu" of this process, to compare on a busy machine.
    """

    steps: int | None = None
    seconds: float | None = None
    clock: Clock = "wall"

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise InvalidCase("A budget needs steps or seconds; give at least one of them.")
        if self.steps is not None and self.steps < 1:
            raise InvalidCase(f"An attack needs steps >= 1, got {self.steps}; raise `steps`.")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise InvalidCase(f"An attack needs seconds > 0 and finite, got {self.seconds}; correct `seconds`.")
        if self.clock not in ("wall", "cpu"):
            raise InvalidCase(f"There is no clock {self.clock!r}; choose wall or cpu.")

    def now(self) -> float:
        return time.process_time() if self.clock == "cpu" else time.perf_counter()

    def spent(self, steps: int, seconds: float) -> float:
        """The share of the budget that is used up, in [0, 1].

        >>> Budget(steps=10, seconds=60).spent(5, 45.0)
        0.75
        """
        shares = [0.0]
        if self.steps is not None:
            shares.append(steps / self.steps)
        if self.seconds is not None:
            shares.append(seconds / self.seconds)
        return min(1.0, max(shares))

    def part(self, share: float) -> Budget:
        """This share of the budget, and one step at least."""
        return replace(
            self,
            steps=None if self.steps is None else max(1, round(share * self.steps)),
            seconds=None if self.seconds is None else share * self.seconds,
        )


BUDGETS: Mapping[str, Budget] = {
    "quick": Budget(seconds=10.0),
    "standard": Budget(seconds=60.0),
    "deep": Budget(seconds=600.0),
}
"""Named amounts of work for one attack on one update."""


class Budgeted(ABC):
    """What can be given another budget."""

    @abstractmethod
    def with_budget(self, budget: Budget) -> Self: ...


class OwnBudget(Budgeted, ABC):
    """A frozen dataclass that keeps its budget in a field of that name."""

    def with_budget(self, budget: Budget) -> Self:
        return replace(self, budget=budget)  # type: ignore[type-var]


class Around(Budgeted, ABC):
    """A frozen dataclass around another ``attack``, whose budget is its own."""

    attack: Any

    def with_attack(self, attack: Any) -> Self:
        return self if attack is self.attack else replace(self, attack=attack)  # type: ignore[type-var]

    def with_budget(self, budget: Budget) -> Self:
        return self.with_attack(with_budget(self.attack, budget))


def with_budget(attack: T, budget: Budget) -> T:
    """The attack with another budget; what has none stays as it is."""
    return attack.with_budget(budget) if isinstance(attack, Budgeted) else attack
