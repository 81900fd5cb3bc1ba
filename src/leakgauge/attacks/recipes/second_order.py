"""Ours: L-BFGS on the pixel box."""

from __future__ import annotations

from leakgauge.attacks.matching import LBFGS, Cosine, GradientMatching, Pixels, TotalVariation
from leakgauge.attacks.recipes.shared import budget_from


def quasi_newton(
    tv_weight: float = 1e-3, steps: int | None = 600, restarts: int = 1, seconds: float | None = None
) -> GradientMatching:
    """Cosine distance and smooth total variation, minimised by L-BFGS on the pixel box: strongest on smooth models."""
    return GradientMatching(
        objective=Cosine(),
        priors=(TotalVariation(tv_weight),) if tv_weight else (),
        parametrisation=Pixels(spread=0.1),
        optimiser=LBFGS(),
        restarts=restarts,
        budget=budget_from(steps, seconds),
    )


def quasi_newton_smooth(
    tv_weight: float = 0.5, steps: int | None = 300, restarts: int = 1, seconds: float | None = None
) -> GradientMatching:
    """`quasi_newton` with a strong prior: less detail from a clean update, but it sees through noise and pruning."""
    return quasi_newton(tv_weight, steps, restarts, seconds)
