"""What the recipes have in common.

Everywhere ``steps`` is the paper's number unless given, and ``seconds``, where given, takes its place: schedules then
run on the time that is spent.
"""

from __future__ import annotations

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching.priors import AnisotropicTotalVariation, Prior

# The papers work in normalised pixels, LeakGauge in [0, 1]: at a standard deviation of 0.25 a unit there is 0.25 here.
UNIT = 0.25


def budget_from(steps: int | None, seconds: float | None) -> Budget:
    return Budget(steps=steps) if seconds is None else Budget(seconds=seconds)


def total_variation(weight: float) -> tuple[Prior, ...]:
    """The papers' form, its weight taken from normalised pixels; none for a weight of 0."""
    return (AnisotropicTotalVariation(weight / UNIT),) if weight else ()
