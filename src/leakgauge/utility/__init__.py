"""What a model is worth: training, plain and under a defence, and accuracy."""

from leakgauge.utility.defended import DefendedTraining
from leakgauge.utility.prediction import Predicts, answer, hits
from leakgauge.utility.recipes import RECIPES, Recipe
from leakgauge.utility.schedule import SCHEDULES, Constant, Cosine, Schedule, Step
from leakgauge.utility.train import Training, accuracy, train

__all__ = [
    "RECIPES",
    "SCHEDULES",
    "Constant",
    "Cosine",
    "DefendedTraining",
    "Predicts",
    "Recipe",
    "Schedule",
    "Step",
    "Training",
    "accuracy",
    "answer",
    "hits",
    "train",
]
