"""Gradient matching: an objective, priors, a parametrisation, an optimiser, a label rule and a way to differentiate."""

from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.differentiation import (
    Automatic,
    DoubleBackward,
    FiniteDifference,
    ForwardOverReverse,
)
from leakgauge.attacks.matching.objectives import L1, Cosine, Euclidean, Geometric, Uniform
from leakgauge.attacks.matching.optimisers import LBFGS, Adam, CosineDecay, SignedAdam, StepDecay
from leakgauge.attacks.matching.parametrisations import Pixels
from leakgauge.attacks.matching.priors import AnisotropicTotalVariation, PixelNorm, TotalVariation
from leakgauge.attacks.matching.published import idlg, inverting_gradients, quasi_newton, quasi_newton_smooth

__all__ = [
    "L1",
    "LBFGS",
    "Adam",
    "AnisotropicTotalVariation",
    "Automatic",
    "Cosine",
    "CosineDecay",
    "DoubleBackward",
    "Euclidean",
    "FiniteDifference",
    "ForwardOverReverse",
    "Geometric",
    "GradientMatching",
    "PixelNorm",
    "Pixels",
    "SignedAdam",
    "StepDecay",
    "TotalVariation",
    "Uniform",
    "idlg",
    "inverting_gradients",
    "quasi_newton",
    "quasi_newton_smooth",
]
