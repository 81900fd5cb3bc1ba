"""TabLeak [Vero et al., 2023]."""

from __future__ import annotations

from leakgauge.attacks.matching import Cosine, GradientMatching, SignedAdam
from leakgauge.attacks.matching.parametrisations import Columns
from leakgauge.attacks.matching.pooled import PooledRows
from leakgauge.attacks.recipes.shared import budget_from
from leakgauge.schedules import ConstantRate


def tab_leak(steps: int | None = 1500, restarts: int = 30, seconds: float | None = None) -> PooledRows:
    """Rows of a table: cosine distance, a softmax for each category, many starts pooled cell by cell [Vero et al.,
    2023].

    Signed Adam at a rate of 0.06, 1 500 steps and 30 starts are the paper's. Theirs pairs all starts with the best one;
    here those in the worse half have no say.
    """
    return PooledRows(
        GradientMatching(
            objective=Cosine(),
            parametrisation=Columns(),
            optimiser=SignedAdam(0.06, ConstantRate()),
            restarts=restarts,
            budget=budget_from(steps, seconds),
        )
    )
