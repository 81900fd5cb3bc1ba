"""iDLG [Zhao et al., 2020]."""

from __future__ import annotations

from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.objectives import Euclidean
from leakgauge.attacks.matching.optimisers import LBFGS
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.recipes.shared import UNIT, budget_of


def idlg(steps: int | None = 300, restarts: int = 1, seconds: float | None = None) -> GradientMatching:
    """`dlg` with the label read off the update [Zhao et al., 2020]; Geiping et al. [2020] give it 8 to 16 restarts."""
    return GradientMatching(
        objective=Euclidean(),
        parametrisation=Pixels(spread=UNIT),
        optimiser=LBFGS(),
        labels=IDLG(),
        restarts=restarts,
        budget=budget_of(steps, seconds),
    )
