"""Gradient matching: an objective, priors, a parametrisation, an optimiser, a label rule and a way to differentiate."""

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.best import Best, best
from leakgauge.attacks.matching.differentiation import (
    Automatic,
    Differentiation,
    DoubleBackward,
    FiniteDifference,
    FrozenDifference,
    Tangent,
)
from leakgauge.attacks.matching.objectives import L1, Cosine, Euclidean, Geometric, Latest, Stepwise, Uniform
from leakgauge.attacks.matching.optimisers import (
    LBFGS,
    Adam,
    CosineDecay,
    Langevin,
    QuantisedSign,
    SignedAdam,
    StepDecay,
    WarmUp,
)
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.priors import (
    AnisotropicTotalVariation,
    BatchNormStatistics,
    GroupConsistency,
    PixelNorm,
    Starting,
    TotalVariation,
)
from leakgauge.attacks.matching.published import (
    dlg,
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
)
from leakgauge.attacks.matching.surrogate import StraightLine
from leakgauge.attacks.matching.unknowns import FreeLabels

__all__ = [
    "L1",
    "LBFGS",
    "Adam",
    "AnisotropicTotalVariation",
    "Automatic",
    "BatchNormStatistics",
    "Best",
    "Budget",
    "Cosine",
    "CosineDecay",
    "Differentiation",
    "DoubleBackward",
    "Euclidean",
    "FiniteDifference",
    "FreeLabels",
    "FrozenDifference",
    "Geometric",
    "GradientMatching",
    "GroupConsistency",
    "Langevin",
    "Latest",
    "PixelNorm",
    "Pixels",
    "QuantisedSign",
    "SignedAdam",
    "Starting",
    "StepDecay",
    "Stepwise",
    "StraightLine",
    "Tangent",
    "TotalVariation",
    "Uniform",
    "WarmUp",
    "best",
    "dlg",
    "grad_attack",
    "grad_inversion",
    "idlg",
    "inverting_gradients",
    "inverting_gradients_l2",
    "inverting_gradients_lbfgs",
    "inverting_gradients_no_tv",
    "quasi_newton",
    "quasi_newton_smooth",
    "stepwise",
]
