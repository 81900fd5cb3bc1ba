"""Generators as the search space: images that a network makes, instead of pixels."""

from leakgauge.attacks.matching.parametrisations.generators.trained import (
    GeneratorFeatures,
    GeneratorLatent,
    TrainedGenerator,
    WeightsPerImage,
)
from leakgauge.attacks.matching.parametrisations.generators.untrained import UntrainedGenerator
from leakgauge.attacks.matching.parametrisations.generators.weights import WIDTH_RULES, GeneratorWeights
