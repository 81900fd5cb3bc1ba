"""GradAttack [Huang et al., 2021]."""

from __future__ import annotations

from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.loss import FreeLabels
from leakgauge.attacks.matching.objectives import Cosine
from leakgauge.attacks.matching.optimisers import SignedAdam, StepDecay
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.priors import BatchNormStatistics, PixelNorm
from leakgauge.attacks.recipes.shared import UNIT, budget_from, total_variation


def grad_attack(
    tv_weight: float = 0.1,
    bn_weight: float = 5e-3,
    norm_weight: float = 0.0,
    steps: int | None = 10_000,
    restarts: int = 1,
    seconds: float | None = None,
) -> GradientMatching:
    """Cosine distance, total variation, BatchNorm statistics and pixel norm; signed Adam [Huang et al., 2021, Eq. 3].

    Hidden labels are found along with the images. The default weights are the authors' against an attacker who has the
    exact statistics (BN_exact); without them theirs are 0.05 and 1e-3. Their terms in pixels are taken from normalised
    pixels to [0, 1], as in `inverting_gradients`, from which the optimiser and its decay are.
    """
    return GradientMatching(
        objective=Cosine(),
        priors=(
            *total_variation(tv_weight),
            *((BatchNormStatistics(bn_weight),) if bn_weight else ()),
            *((PixelNorm(norm_weight / UNIT**2),) if norm_weight else ()),
        ),
        parametrisation=Pixels(mean=0.5, spread=UNIT),
        optimiser=SignedAdam(learning_rate=0.1 * UNIT, schedule=StepDecay()),
        labels=FreeLabels(),
        restarts=restarts,
        budget=budget_from(steps, seconds),
    )
