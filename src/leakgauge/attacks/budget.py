"""How much work an attack may spend."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

from leakgauge.errors import InvalidCase

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


BUDGETS: Mapping[str, Budget] = {
    "quick": Budget(seconds=10.0),
    "standard": Budget(seconds=60.0),
    "deep": Budget(seconds=600.0),
}
"""Named amounts of work for one attack on one update."""


def with_budget(attack: Any, budget: Budget) -> Any:
    """The attack with another budget, its own or that of the attack it wraps; what has none stays as it is."""
    if callable(own := getattr(attack, "with_budget", None)):
        return own(budget)
    if not is_dataclass(attack):
        return attack
    parts = {entry.name: getattr(attack, entry.name) for entry in fields(attack) if entry.init}
    if isinstance(parts.get("budget"), Budget):
        return replace(attack, budget=budget)  # type: ignore[type-var]
    inner = parts.get("attack")
    changed = with_budget(inner, budget)
    return attack if changed is inner else replace(attack, attack=changed)  # type: ignore[type-var]
