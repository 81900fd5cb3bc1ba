"""Gradient matching: an objective, priors, a parametrisation, an optimiser, a label rule and a way to differentiate."""

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.matching.attack import GradientMatching
from leakgauge.attacks.matching.control import OnNoise
from leakgauge.attacks.matching.differentiation import (
    Accumulated,
    Automatic,
    Differentiation,
    DoubleBackward,
    FiniteDifference,
    FrozenDifference,
    Tangent,
)
from leakgauge.attacks.matching.loss import FreeLabels
from leakgauge.attacks.matching.objectives import (
    L1,
    Cosine,
    CosineByTensor,
    Euclidean,
    Geometric,
    Latest,
    Stepwise,
    Uniform,
)
from leakgauge.attacks.matching.optimisers import (
    LBFGS,
    Adam,
    ConstantRate,
    CosineDecay,
    Langevin,
    QuantisedSign,
    SignedAdam,
    StepDecay,
    WarmUp,
)
from leakgauge.attacks.matching.parametrisations import Columns, Pixels, SoftTokens
from leakgauge.attacks.matching.parametrisations.generators import (
    GeneratorFeatures,
    GeneratorLatent,
    GeneratorWeights,
    TrainedGenerator,
    UntrainedGenerator,
    WeightsPerImage,
)
from leakgauge.attacks.matching.pooled import PooledRows
from leakgauge.attacks.matching.priors import (
    AnisotropicTotalVariation,
    Balanced,
    BatchNormStatistics,
    Fading,
    GroupConsistency,
    PixelNorm,
    Starting,
    TotalVariation,
    Yielding,
)
from leakgauge.attacks.matching.relay import Leg, Relay
from leakgauge.attacks.matching.surrogate import StraightLine
