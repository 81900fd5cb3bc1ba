"""Ours: span matching."""

from __future__ import annotations

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching import TotalVariation
from leakgauge.attacks.span import SpanMatching


def span_matching(
    tv_weight: float = 1e-4, starts: int = 3, steps: int | None = None, seconds: float | None = None
) -> SpanMatching:
    """Images whose layer inputs lie in the span of the gradient: exact on wide networks; without a budget, a minute."""
    if seconds is None and steps is None:
        seconds = 60.0
    return SpanMatching(
        priors=(TotalVariation(tv_weight),) if tv_weight else (),
        starts=starts,
        budget=Budget(steps=steps, seconds=seconds),
    )
