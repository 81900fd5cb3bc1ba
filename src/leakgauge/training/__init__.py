"""What a model is worth: training, plain and under a defence, and accuracy."""

from leakgauge.training.defended import DefendedTraining
from leakgauge.training.prediction import Predicts, answer, hits
from leakgauge.training.recipes import RECIPES, Recipe
from leakgauge.training.schedule import SCHEDULES, Constant, Cosine, Schedule, Step
from leakgauge.training.train import Training, accuracy, train

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
