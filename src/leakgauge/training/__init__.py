"""The one home of training: how a model is built, loaded, trained plainly or under a defence, kept, and measured."""

from leakgauge.training.defended import DefendedTraining
from leakgauge.training.models import (
    Pretrained,
    Victim,
    default_steps,
    is_own_model,
    kept_victim,
    loaded_victim,
    model_for,
    victim_model,
)
from leakgauge.training.prediction import answer, hits
from leakgauge.training.run import PreparedTraining, Trained, TrainingPlan, prepare_training, run_training
from leakgauge.training.train import RECIPES, SCHEDULES, Recipe, Training, accuracy, train
