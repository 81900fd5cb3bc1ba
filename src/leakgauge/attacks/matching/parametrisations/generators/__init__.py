"""Generators as the search space: images that a network makes, instead of pixels."""

from leakgauge.attacks.matching.parametrisations.generators.trained import (
    GeneratorFeatures,
    GeneratorLatent,
    TrainedGenerator,
    WeightsPerImage,
)
from leakgauge.attacks.matching.parametrisations.generators.untrained import (
    WIDTH_RULES,
    GeneratorWeights,
    UntrainedGenerator,
)
