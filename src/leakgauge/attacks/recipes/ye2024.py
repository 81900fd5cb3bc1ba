"""HFGradInv [Ye et al., 2024]."""

from __future__ import annotations

from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.objectives import Cosine, Stepwise
from leakgauge.attacks.matching.optimisers import QuantisedSign, StepDecay
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.priors import BatchNormStatistics, Starting
from leakgauge.attacks.recipes.shared import UNIT, budget_from, total_variation


def stepwise(
    tv_weight: float = 5e-3,
    bn_weight: float = 1e-4,
    steps: int | None = 15_000,
    restarts: int = 1,
    seconds: float | None = None,
) -> GradientMatching:
    """Cosine over late layers first, then earlier ones, quantised signs, priors late [Ye et al., 2024, HFGradInv].

    Total variation joins at 3 000 of 15 000 steps, BatchNorm statistics (first layer times 1.3) at 5 000. The authors
    add ten of 110 tensors every 500 steps and never match the first 25; here shares of the budget and of the tensors
    stand for these numbers, and in the end all tensors count. The learning rate decays as in `inverting_gradients`.
    Labels are restored by the attack's own rule, not by theirs, which needs other data.
    """
    return GradientMatching(
        objective=Stepwise(Cosine(), first=0.1, stages=8, until=4 / 15),
        priors=(
            *(Starting(prior, after=0.2) for prior in total_variation(tv_weight)),
            Starting(BatchNormStatistics(bn_weight, first=1.3), after=1 / 3),
        ),
        parametrisation=Pixels(mean=0.5, spread=UNIT),
        optimiser=QuantisedSign(learning_rate=0.1 * UNIT, schedule=StepDecay()),
        restarts=restarts,
        budget=budget_from(steps, seconds),
    )
