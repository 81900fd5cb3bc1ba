"""GradInversion [Yin et al., 2021]."""

from __future__ import annotations

from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.objectives import Euclidean
from leakgauge.attacks.matching.optimisers import Langevin, WarmUp
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.priors import BatchNormStatistics, GroupConsistency, PixelNorm
from leakgauge.attacks.recipes.shared import UNIT, budget_from, total_variation


def grad_inversion(
    seeds: int = 8,
    tv_weight: float = 1e-3,
    norm_weight: float = 1e-5,
    bn_weight: float = 1.0,
    group_weight: float = 0.1,
    steps: int | None = 20_000,
    seconds: float | None = None,
) -> GradientMatching:
    """Euclidean distance, total variation, pixel norm, BatchNorm statistics, consistency of several seeds; Adam with
    warm-up, cosine decay and Langevin noise [Yin et al., 2021].

    The paper minimises 1e-3 sum_l |g_l(x) - g_l|_2 + 1e-4 TV + 1e-6 |x| + 0.1 R_BN + 0.01 R_group. Here the distance is
    relative, |g(x) - g|^2 / |g|^2, about 1 at the start, where theirs is about 1e-3 sum_l |g_l|; that sum is of order
    100 for batches of eight on convolutional networks with BatchNorm in train mode, so their weights are divided by
    0.1. Those of terms in pixels are then taken from normalised pixels to [0, 1]. Registration is by translation, and
    labels are restored by the attack's own rule, not by theirs.
    """
    return GradientMatching(
        objective=Euclidean(),
        priors=(
            *total_variation(tv_weight),
            PixelNorm(norm_weight / UNIT**2),
            BatchNormStatistics(bn_weight),
            GroupConsistency(group_weight / UNIT, after=0.25),
        ),
        parametrisation=Pixels(mean=0.5, spread=UNIT),
        # 50 of 20 000 steps to warm up.
        optimiser=Langevin(learning_rate=0.1 * UNIT, schedule=WarmUp(share=0.0025), noise=0.2),
        restarts=seeds,
        budget=budget_from(steps, seconds),
    )
