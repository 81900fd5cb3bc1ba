"""Gradient matching: an objective, priors, a parametrisation, an optimiser, a label rule and a way to differentiate."""

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.differentiation import (
    Automatic,
    DoubleBackward,
    FiniteDifference,
    FrozenDifference,
    Tangent,
)
from leakgauge.attacks.matching.objectives import L1, Cosine, Euclidean, Geometric, Latest, Stepwise, Uniform
from leakgauge.attacks.matching.optimisers import LBFGS, Adam, CosineDecay, SignedAdam, StepDecay
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.priors import AnisotropicTotalVariation, PixelNorm, Starting, TotalVariation
from leakgauge.attacks.matching.published import idlg, inverting_gradients, quasi_newton, quasi_newton_smooth
from leakgauge.attacks.matching.surrogate import StraightLine
from leakgauge.attacks.matching.unknowns import FreeLabels

__all__ = [
    "L1",
    "LBFGS",
    "Adam",
    "AnisotropicTotalVariation",
    "Automatic",
    "Budget",
    "Cosine",
    "CosineDecay",
    "DoubleBackward",
    "Euclidean",
    "FiniteDifference",
    "FrozenDifference",
    "Geometric",
    "FreeLabels",
    "GradientMatching",
    "Latest",
    "PixelNorm",
    "Pixels",
    "SignedAdam",
    "Starting",
    "StepDecay",
    "Stepwise",
    "StraightLine",
    "Tangent",
    "TotalVariation",
    "Uniform",
    "idlg",
    "inverting_gradients",
    "quasi_newton",
    "quasi_newton_smooth",
]
