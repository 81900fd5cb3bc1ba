"""How much work an attack may spend."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeVar, get_args

import torch

from leakgauge.clocks import Seconds
from leakgauge.errors import InvalidCase

T = TypeVar("T")
Clock = Literal["cpu", "wall"]

PATIENCE = 20.0
"""How many times its seconds, one at the least, an attack may take on the wall."""


@dataclass(frozen=True)
class Budget:
    """At most ``steps`` steps and at most ``seconds`` seconds; schedules run on the share that is spent.

    With steps alone a run gives the same digits again; with seconds it depends on the machine, and the record says how
    many steps were made. ``clock``: "cpu" counts what the attack's own thread worked (see `Seconds`), so that a busy
    machine makes an attack late and not weak; "wall" counts as people wait. No clock ends an attack before its
    ``least`` number of steps, except the one on the wall after `PATIENCE` times the seconds, so that it does end.
    """

    steps: int | None = None
    seconds: float | None = None
    clock: Clock = "cpu"
    least: int = 30

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise InvalidCase("A budget needs steps or seconds; give at least one of them.")
        if self.steps is not None and self.steps < 1:
            raise InvalidCase(f"An attack needs steps >= 1, got {self.steps}; raise `steps`.")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise InvalidCase(f"An attack needs seconds > 0 and finite, got {self.seconds}; correct `seconds`.")
        if self.clock not in get_args(Clock):
            raise InvalidCase(f"There is no clock {self.clock!r}; choose cpu or wall.")
        if self.least < 1:
            raise InvalidCase(f"An attack makes one step at least, got least={self.least}; raise `least`.")

    def now(self) -> Seconds:
        return Seconds.now()

    def on(self, device: torch.device) -> Budget:
        """The same for work on this device; an accelerator has no CPU seconds, so there one waits for it."""
        return self if device.type == "cpu" or self.clock == "wall" else replace(self, clock="wall")

    @property
    def backstop(self) -> float:
        """Seconds on the wall after which it ends whatever its own clock says."""
        return math.inf if self.seconds is None else PATIENCE * max(1.0, self.seconds)

    def counted(self, elapsed: Seconds) -> float:
        """The seconds by the clock of this budget."""
        return elapsed.wall if self.clock == "wall" else elapsed.cpu

    def spent(self, steps: int, elapsed: Seconds) -> float:
        """The share of the budget that is used up, in [0, 1].

        >>> Budget(steps=10, seconds=60).spent(5, Seconds(cpu=45))
        0.5
        >>> Budget(seconds=60).spent(300, Seconds(cpu=45, wall=600))
        0.75
        """
        shares = [0.0]
        if self.steps is not None:
            shares.append(steps / self.steps)
        if self.seconds is not None:
            # Not ahead of the least number of steps, so that a schedule still runs over all of them.
            shares.append(min(self.counted(elapsed) / self.seconds, steps / self.least))
            shares.append(elapsed.wall / self.backstop)
        return min(1.0, max(shares))

    def is_overdue(self, steps: int, elapsed: Seconds) -> bool:
        """Whether the wall's clock has ended it before its steps, its seconds and its least number of steps could."""
        if self.seconds is None or (self.steps is not None and steps >= self.steps):
            return False
        used_up = steps >= self.least and self.counted(elapsed) >= self.seconds
        return elapsed.wall >= self.backstop and not used_up

    def part(self, share: float) -> Budget:
        """This share of the budget, and one step at least."""
        return replace(
            self,
            steps=None if self.steps is None else max(1, round(share * self.steps)),
            seconds=None if self.seconds is None else share * self.seconds,
            least=self.least if self.seconds is None else max(1, round(share * self.least)),
        )

    def after(self, elapsed: Seconds) -> Budget:
        """What is left of its seconds after so many, and a tenth of them at least; steps are as many as before.

        >>> Budget(seconds=60.0).after(Seconds(cpu=45.0, wall=600.0)).seconds
        15.0
        """
        if self.seconds is None:
            return self
        return replace(self, seconds=max(self.seconds - self.counted(elapsed), self.seconds / 10))


BUDGETS: Mapping[str, Budget] = {
    "quick": Budget(seconds=10.0),
    "standard": Budget(seconds=60.0),
    "deep": Budget(seconds=600.0),
}
"""Named amounts of work for one attack on one update, in CPU seconds."""


class Budgeted(ABC):
    """What can be given another budget."""

    @abstractmethod
    def with_budget(self, budget: Budget) -> Self: ...


class OwnBudget(Budgeted, ABC):
    """A frozen dataclass that keeps its budget in a field of that name."""

    budget: Budget

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


def budget_of(attack: object) -> Budget | None:
    """The budget of an attack, or of the one it is around; None where it has none."""
    if isinstance(attack, Around):
        return budget_of(attack.attack)
    return attack.budget if isinstance(attack, OwnBudget) else None
