"""Networks that make images: what they are, how they are trained on public data, how they are kept."""

from leakgauge.generative.dcgan import DCGAN, doublings, first_grid, read_generator, write_generator
from leakgauge.generative.training import GeneratorTraining, GeneratorTrainingPlan, train_generator
