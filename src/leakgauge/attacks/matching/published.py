"""Published attacks, and our own recipe, as named compositions of parts."""

from __future__ import annotations

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.objectives import Cosine, Euclidean
from leakgauge.attacks.matching.optimisers import LBFGS, SignedAdam, StepDecay
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.priors import AnisotropicTotalVariation, TotalVariation

# The papers work in normalised pixels, LeakGauge in [0, 1]: at a standard deviation of 0.25 a unit there is 0.25 here.
_UNIT = 0.25


def inverting_gradients(tv_weight: float = 1e-2, steps: int = 4_800, restarts: int = 1) -> GradientMatching:
    """Cosine distance, total variation, signed Adam with step decay [Geiping et al., 2020, Eq. 4 and appendix C]."""
    return GradientMatching(
        objective=Cosine(),
        priors=(AnisotropicTotalVariation(tv_weight / _UNIT),),
        parametrisation=Pixels(mean=0.5, spread=_UNIT),
        optimiser=SignedAdam(learning_rate=0.1 * _UNIT, schedule=StepDecay()),
        budget=Budget(steps=steps),
        restarts=restarts,
    )


def idlg(steps: int = 300, restarts: int = 1) -> GradientMatching:
    """Euclidean distance, no prior, L-BFGS, the label read off the update [Zhu et al., 2019; Zhao et al., 2020]."""
    return GradientMatching(
        objective=Euclidean(),
        parametrisation=Pixels(spread=_UNIT),
        optimiser=LBFGS(),
        restarts=restarts,
        budget=Budget(steps=steps),
    )


def quasi_newton(tv_weight: float = 1e-3, steps: int = 600, restarts: int = 1) -> GradientMatching:
    """Cosine distance and smooth total variation, minimised by L-BFGS on the pixel box: strongest on smooth models."""
    return GradientMatching(
        objective=Cosine(),
        priors=(TotalVariation(tv_weight),),
        parametrisation=Pixels(spread=0.1),
        optimiser=LBFGS(),
        restarts=restarts,
        budget=Budget(steps=steps),
    )


def quasi_newton_smooth(tv_weight: float = 0.5, steps: int = 300, restarts: int = 1) -> GradientMatching:
    """`quasi_newton` with a strong prior: less detail from a clean update, but it sees through noise and pruning."""
    return quasi_newton(tv_weight, steps, restarts)
