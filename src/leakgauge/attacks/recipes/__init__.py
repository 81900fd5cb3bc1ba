"""Attacks as compositions: the papers', and our strongest."""

from leakgauge.attacks.recipes.best import Best, best
from leakgauge.attacks.recipes.federated import epoch_copies, local_step_search, midway, surrogate
from leakgauge.attacks.recipes.published import (
    ci_net,
    dlg,
    gias,
    gias_on_noise,
    gifd,
    grad_attack,
    grad_inversion,
    idlg,
    inverting_gradients,
    inverting_gradients_l2,
    inverting_gradients_lbfgs,
    inverting_gradients_no_tv,
    quasi_newton,
    quasi_newton_smooth,
    stepwise,
    tuned_ci_net,
)

__all__ = [
    "Best",
    "best",
    "ci_net",
    "dlg",
    "epoch_copies",
    "gias",
    "gias_on_noise",
    "gifd",
    "grad_attack",
    "grad_inversion",
    "idlg",
    "inverting_gradients",
    "inverting_gradients_l2",
    "inverting_gradients_lbfgs",
    "inverting_gradients_no_tv",
    "local_step_search",
    "midway",
    "quasi_newton",
    "quasi_newton_smooth",
    "stepwise",
    "surrogate",
    "tuned_ci_net",
]
