"""Gradient attacks on transformers [Deng et al., 2021]."""

from __future__ import annotations

from leakgauge.attacks.matching import Euclidean, GradientMatching
from leakgauge.attacks.matching.optimisers import Adam
from leakgauge.attacks.matching.parametrisations import SoftTokens
from leakgauge.attacks.recipes.shared import budget_from
from leakgauge.attacks.text.matching import TextMatching


def tag(steps: int | None = 300, restarts: int = 1, seconds: float | None = None) -> TextMatching:
    """TAG: texts whose gradient comes near the observed one, found by Adam on embeddings [Deng et al., 2021].

    For updates that the exact attack cannot read: noise, pruning, too many tokens. Ours moves weights of all tokens,
    whose means the embeddings are, so that what came back needs no search for the nearest token, and counts the
    Euclidean distance alone; theirs adds a share of the absolute one.
    """
    return TextMatching(
        GradientMatching(
            objective=Euclidean(),
            parametrisation=SoftTokens(),
            optimiser=Adam(learning_rate=0.5),
            restarts=restarts,
            budget=budget_from(steps, seconds),
        )
    )
