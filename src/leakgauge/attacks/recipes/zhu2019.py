"""Deep leakage from gradients [Zhu et al., 2019]."""

from __future__ import annotations

from leakgauge.attacks.matching import LBFGS, Euclidean, FreeLabels, GradientMatching, Pixels
from leakgauge.attacks.recipes.shared import UNIT, budget_from


def dlg(steps: int | None = 300, restarts: int = 16, seconds: float | None = None) -> GradientMatching:
    """Euclidean distance, no prior, L-BFGS, labels found along with the images, from N(0, 1) [Zhu et al., 2019].

    16 restarts as Geiping et al. [2020, appendix C] allow it. Ours keeps pixels in [0, 1], where theirs are free,
    counts the distance relative to the update's length and searches along the line, so that no learning rate is needed;
    a step is one evaluation, where theirs makes up to 20. Labels that the threat model gives are taken as given.
    """
    return GradientMatching(
        objective=Euclidean(),
        parametrisation=Pixels(spread=UNIT),
        optimiser=LBFGS(),
        labels=FreeLabels(),
        restarts=restarts,
        budget=budget_from(steps, seconds),
    )
