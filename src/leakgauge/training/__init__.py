"""The one home of training: how a model is built, loaded, trained plainly or under a defence, kept, and measured."""

from leakgauge.training.defended import DefendedTraining
from leakgauge.training.models import Victim, default_steps, is_own_model, kept_victim, model_for, victim_model
from leakgauge.training.prediction import Predicts, answer, hits
from leakgauge.training.recipes import RECIPES, Recipe
from leakgauge.training.run import PreparedTraining, Trained, TrainingPlan, prepare_training, run_training
from leakgauge.training.schedule import SCHEDULES, Constant, Cosine, Schedule, Step
from leakgauge.training.train import Training, accuracy, train

__all__ = [
    "RECIPES",
    "SCHEDULES",
    "Constant",
    "Cosine",
    "DefendedTraining",
    "Predicts",
    "PreparedTraining",
    "Recipe",
    "Schedule",
    "Step",
    "Trained",
    "Training",
    "TrainingPlan",
    "Victim",
    "accuracy",
    "answer",
    "default_steps",
    "hits",
    "is_own_model",
    "kept_victim",
    "model_for",
    "prepare_training",
    "run_training",
    "train",
    "victim_model",
]
