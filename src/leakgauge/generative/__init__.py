"""Networks that make images: what they are, how they are trained on public data, how they are kept."""

from leakgauge.generative.dcgan import DCGAN
from leakgauge.generative.saved import read_generator, write_generator
from leakgauge.generative.sizes import doublings, first_grid
from leakgauge.generative.training import GeneratorTraining, GeneratorTrainingPlan, train_generator
