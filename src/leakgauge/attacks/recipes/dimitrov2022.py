"""A copy of the batch per epoch of a FedAvg client [Dimitrov et al., 2022]."""

from __future__ import annotations

from leakgauge.attacks.federated.epoch_copies import EpochCopies, PermutationInvariant
from leakgauge.attacks.recipes.geiping2020 import OptimiserName, matching_by


def epoch_copies(
    tv_weight: float = 1e-3,
    tie: float = 1.0,
    steps: int | None = 600,
    restarts: int = 1,
    seconds: float | None = None,
    optimiser: OptimiserName = "signed_adam",
) -> EpochCopies:
    """A copy of the batch per epoch, for clients that shuffle; ``tie`` is the weight of what holds the copies together.

    After Dimitrov et al. [2022], who weigh the layers; here the cosine counts all alike.
    """
    return EpochCopies(matching_by(optimiser, tv_weight, steps, restarts, seconds), PermutationInvariant(tie))
