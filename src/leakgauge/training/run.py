"""A defended training in words, run so that it outlives its process, and what it says about the defence's cost."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.checkpoints import CHECKPOINT_EVERY, run_kept
from leakgauge.config import build, build_dataset, build_defence, build_loss, choose
from leakgauge.data import Dataset
from leakgauge.defences import Defence, guaranteed_epsilon
from leakgauge.files import finite, inside
from leakgauge.fingerprint import digest, training_code
from leakgauge.metrics import Identification, Summary, summarise
from leakgauge.progress import Progress, silent
from leakgauge.protocol.learner import learner_and_state
from leakgauge.randomness import seeded
from leakgauge.threads import model_threads
from leakgauge.training.defended import DefendedTraining
from leakgauge.training.models import REFERENCE, named_model
from leakgauge.training.prediction import hits
from leakgauge.training.train import RECIPES, SCHEDULES, Recipe
from leakgauge.types import ModelState


@dataclass(frozen=True)
class TrainingPlan:
    """One model trained under one defence; options that are given replace those of the recipe."""

    dataset: str = "photos"
    data_root: str | None = None
    model: str = "compact"
    normalise: str | None = None
    loss: str = "cross_entropy"
    state: str | None = None
    defence: str = "none"
    recipe: str = "short"
    steps: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    schedule: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self.chosen_recipe()

    def chosen_recipe(self) -> Recipe:
        named = choose(RECIPES, self.recipe, kind="recipe")
        if self.steps is not None or self.epochs is not None:
            named = replace(named, steps=self.steps, epochs=self.epochs)
        return replace(
            named,
            batch_size=named.batch_size if self.batch_size is None else self.batch_size,
            learning_rate=named.learning_rate if self.learning_rate is None else self.learning_rate,
            schedule=named.schedule if self.schedule is None else build(SCHEDULES, self.schedule, kind="schedule"),
        )


@dataclass(frozen=True)
class Quartiles:
    """Median and quartiles over ``count`` measurements; NaN if there is none."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Tensor) -> Quartiles:
        """
        >>> Quartiles.of(torch.tensor([1.0, 2.0, 4.0])).median
        2.0
        """
        if len(values) == 0:
            return cls(float("nan"), float("nan"), float("nan"), 0)
        low, median, high = torch.quantile(values.double(), torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
        return cls(float(median), float(low), float(high), len(values))


@dataclass(frozen=True)
class Trained:
    """A finished training. ``overhead`` is time per defended step over time per undefended one, step by step.

    ``accuracy`` is NaN if the training diverged; ``guess`` is what naming the most frequent class would score.
    ``epsilon`` is what DP-SGD guarantees each example at ``DELTA``, as if batches were drawn by independent coins,
    which shuffling only resembles; None for other defences, NaN where no accountant is at hand. An update that is
    attacked is one round; ``epsilon_of_a_round`` is what its noise guarantees alone.
    """

    plan: TrainingPlan
    steps: int
    accuracy: Summary
    guess: float
    overhead: Quartiles
    seconds_per_step: float
    diverged: bool
    state: ModelState
    module: nn.Module
    epsilon: float | None = None
    epsilon_of_a_round: float | None = None

    def weights(self) -> dict[str, Tensor]:
        """The trained weights under the names of ``module.state_dict()``, as ``audit --state`` reads them."""
        module = copy.deepcopy(self.module)
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        with torch.no_grad():
            for name, tensor in {**self.state.params, **self.state.buffers}.items():
                held[name].copy_(tensor)
        return module.state_dict()

    def to_dict(self) -> dict[str, Any]:
        recipe = self.plan.chosen_recipe()
        return {
            **{name: getattr(self.plan, name) for name in ("defence", "dataset", "model", "recipe")},
            "steps": self.steps,
            "batch_size": recipe.batch_size,
            "learning_rate": recipe.learning_rate,
            "momentum": recipe.momentum,
            "schedule": repr(recipe.schedule),
            "accuracy": {
                "measured": self.accuracy.count > 0,
                "mean": finite(self.accuracy.mean),
                "interval": [finite(self.accuracy.low), finite(self.accuracy.high)],
                "count": self.accuracy.count,
                "guess": finite(self.guess),
            },
            "overhead": {
                "measured": self.overhead.count > 0,
                "median": finite(self.overhead.median),
                "quartiles": [finite(self.overhead.low), finite(self.overhead.high)],
                "count": self.overhead.count,
            },
            "seconds_per_step": finite(self.seconds_per_step),
            "diverged": self.diverged,
            "epsilon": finite(self.epsilon),
            "epsilon_of_a_round": finite(self.epsilon_of_a_round),
        }


@dataclass(frozen=True)
class PreparedTraining:
    """A plan made concrete; all bad input has shown by now."""

    plan: TrainingPlan
    dataset: Dataset
    module: nn.Module
    defence: Defence
    training: DefendedTraining
    key: str


def prepare_training(plan: TrainingPlan, dataset: Dataset | None = None) -> PreparedTraining:
    """Load the data and build the model with its first weights; ``dataset`` spares the loading where it is at hand."""
    defence, recipe = build_defence(plan.defence), plan.chosen_recipe()
    dataset = dataset or build_dataset(plan.dataset, plan.data_root)
    settings = recipe.training(len(dataset.train))
    loss = build_loss(plan.loss, plan.model)
    module = named_model(plan.model, dataset, seed=plan.seed, state=plan.state, loss=loss, normalise=plan.normalise)
    learner, state = learner_and_state(module, loss, mode="train")
    key = digest(
        (
            training_code(),
            plan.dataset,
            plan.model,
            plan.loss,
            repr(defence),
            repr(settings),
            repr(recipe.schedule),
            repr(learner.module),
        ),
        (dataset.train.labels, dataset.train.inputs[:REFERENCE], *state.params.values(), *state.buffers.values()),
        (plan.seed,),
    )
    training = DefendedTraining(learner, state, dataset.train, defence, settings, recipe.schedule, seed=plan.seed)
    return PreparedTraining(plan, dataset, module, defence, training, key)


def run_training(
    prepared: PreparedTraining,
    folder: Path,
    progress: Progress = silent,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> Trained:
    """Train to the end, from the checkpoint in ``folder`` if there is one; Ctrl-C keeps what was done, and passes."""
    plan = prepared.plan
    described = {
        "model": plan.model,
        "dataset": plan.dataset,
        "defence": repr(prepared.defence),
        "seed": str(plan.seed),
    }
    with model_threads(prepared.module):
        run_kept(prepared.training, checkpoint(prepared, folder), described, progress, checkpoint_every)
        return _measure(prepared)


def checkpoint(prepared: PreparedTraining, folder: Path) -> Path:
    """Where a training is kept, under way and finished; another training has another file."""
    return inside(folder / "trainings", f"{prepared.key}.safetensors")


def _measure(prepared: PreparedTraining) -> Trained:
    training, test = prepared.training, prepared.dataset.test
    found = (
        torch.full((len(test),), torch.nan, dtype=torch.float64)
        if training.diverged
        else hits(
            training.learner,
            training.state,
            test,
            prepared.defence,
            generator=seeded(prepared.plan.seed, "predict"),
        )
    )
    pairs = training.seconds
    rate = min(1.0, training.training.batch_size / len(training.data))
    return Trained(
        plan=prepared.plan,
        steps=training.done,
        # Any metric of zeros and ones: it says that the mean is a proportion, whose interval is Wilson's.
        accuracy=summarise(found, Identification()),
        guess=float(test.labels.bincount().max()) / len(test) if len(test) else float("nan"),
        overhead=Quartiles.of(pairs[:, 0] / pairs[:, 1]),
        seconds_per_step=Quartiles.of(pairs[:, 0]).median,
        diverged=training.diverged,
        state=training.state,
        module=prepared.module,
        epsilon=guaranteed_epsilon(prepared.defence, rate, training.done),
        epsilon_of_a_round=guaranteed_epsilon(prepared.defence, rate, 1),
    )
