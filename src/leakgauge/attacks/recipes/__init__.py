"""Attacks as compositions: a file for each paper, and our own."""

from leakgauge.attacks.recipes.balunovic2022 import lamp, lamp_l2
from leakgauge.attacks.recipes.best import Best, best
from leakgauge.attacks.recipes.deng2021 import tag
from leakgauge.attacks.recipes.dimitrov2022 import epoch_copies
from leakgauge.attacks.recipes.exact import Exact, exact
from leakgauge.attacks.recipes.fang2023 import gifd
from leakgauge.attacks.recipes.geiping2020 import (
    inverting_gradients,
    inverting_gradients_l2,
    inverting_gradients_lbfgs,
    inverting_gradients_no_tv,
    local_step_search,
)
from leakgauge.attacks.recipes.huang2021 import grad_attack
from leakgauge.attacks.recipes.jeon2021 import gias, gias_on_noise
from leakgauge.attacks.recipes.second_order import quasi_newton, quasi_newton_smooth
from leakgauge.attacks.recipes.spans import feature_maps, span_matching
from leakgauge.attacks.recipes.vero2023 import tab_leak
from leakgauge.attacks.recipes.ye2024 import stepwise
from leakgauge.attacks.recipes.yin2021 import grad_inversion
from leakgauge.attacks.recipes.zhang2023 import ci_net, tuned_ci_net
from leakgauge.attacks.recipes.zhao2020 import idlg
from leakgauge.attacks.recipes.zhu2019 import dlg
from leakgauge.attacks.recipes.zhu2023 import midway, surrogate
