"""SME: one gradient on a FedAvg client's way [Zhu et al., 2023]."""

from __future__ import annotations

from leakgauge.attacks.federated.one_gradient import MidwayMatching, SurrogateMatching
from leakgauge.attacks.recipes.geiping2020 import OptimiserName, matching_by


def surrogate(
    tv_weight: float = 1e-3,
    steps: int | None = 1000,
    restarts: int = 1,
    seconds: float | None = None,
    optimiser: OptimiserName = "signed_adam",
) -> SurrogateMatching:
    """One gradient on the client's way, found along with the images; no hyper-parameters needed [Zhu et al., 2023].

    Cosine distance, total variation and a step decay at 3/8, 5/8 and 7/8, as published. The published Adam sees signs
    here, and moves the position at the rate of the pixels, not at its own.
    """
    return SurrogateMatching(matching_by(optimiser, tv_weight, steps, restarts, seconds))


def midway(
    tv_weight: float = 1e-3,
    steps: int | None = 1000,
    restarts: int = 1,
    seconds: float | None = None,
    optimiser: OptimiserName = "signed_adam",
) -> MidwayMatching:
    """The gradient in the middle of the client's way: as `surrogate`, with the position fixed and steps cheaper."""
    return MidwayMatching(matching_by(optimiser, tv_weight, steps, restarts, seconds))
