"""A defended training in words, run so that it outlives its process, and what it says about the defence's cost."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.audit.plan import Plan, victim_model
from leakgauge.catalogue import DATASETS
from leakgauge.config import build, build_defence
from leakgauge.data import Dataset
from leakgauge.defences import DPSGD, Defence, epsilon
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import finite, read_tensors, writable_folder, write_tensors
from leakgauge.fingerprint import digest
from leakgauge.metrics import Identification, Summary, summarise
from leakgauge.protocol.learner import learner_and_state
from leakgauge.randomness import seeded
from leakgauge.threads import suitable_threads
from leakgauge.training import RECIPES, SCHEDULES, DefendedTraining, Recipe, hits
from leakgauge.types import ModelState
from leakgauge.version import VERSION

TrainProgress = Callable[[int, int], None]

CHECKPOINT_EVERY = 30.0
"""Seconds of training that a killed process may lose."""

DELTA = 1e-5

_DIGESTED = 2048


@dataclass(frozen=True)
class TrainingPlan:
    """One model trained under one defence; options that are given replace those of the recipe."""

    dataset: str = "photos"
    data_root: str | None = None
    model: str = "compact"
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
        named: Recipe = build({name: _given(one) for name, one in RECIPES.items()}, self.recipe, kind="recipe")
        return named.changed(
            steps=self.steps,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            schedule=None if self.schedule is None else build(SCHEDULES, self.schedule, kind="schedule"),
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
        return _loaded(self.module, self.state).state_dict()

    def to_dict(self) -> dict[str, Any]:
        recipe = self.plan.chosen_recipe()
        return {
            "defence": self.plan.defence,
            "dataset": self.plan.dataset,
            "model": self.plan.model,
            "recipe": self.plan.recipe,
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
            "epsilon": None if self.epsilon is None else finite(self.epsilon),
            "epsilon_of_a_round": None if self.epsilon_of_a_round is None else finite(self.epsilon_of_a_round),
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
    defence = build_defence(plan.defence)
    recipe = plan.chosen_recipe()
    if dataset is None:
        root = None if plan.data_root is None else Path(plan.data_root)
        dataset = build(DATASETS, plan.dataset, kind="dataset")(root)
    settings = recipe.training(len(dataset.train))
    module = untrained(plan, dataset)
    learner, state = learner_and_state(module, mode="train")
    key = digest(
        (VERSION, plan.dataset, plan.model, repr(defence), repr(settings), repr(recipe.schedule), repr(learner.module)),
        (dataset.train.labels, dataset.train.inputs[:_DIGESTED], *state.params.values(), *state.buffers.values()),
        (plan.seed,),
    )
    training = DefendedTraining(learner, state, dataset.train, defence, settings, recipe.schedule, seed=plan.seed)
    return PreparedTraining(plan, dataset, module, defence, training, key)


def untrained(plan: TrainingPlan, dataset: Dataset) -> nn.Module:
    """The model an audit of the same words would attack, with its first weights."""
    words = Plan(
        dataset=plan.dataset,
        data_root=plan.data_root,
        model=plan.model,
        state=plan.state,
        train_steps=0,
        seed=plan.seed,
    )
    return victim_model(words, dataset, lambda step, steps: None)


def run_training(
    prepared: PreparedTraining,
    folder: Path,
    progress: TrainProgress = lambda step, steps: None,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> Trained:
    """Train to the end, from the checkpoint in ``folder`` if there is one; Ctrl-C keeps what was done, and passes."""
    training = prepared.training
    path = checkpoint(prepared, folder)
    if path.is_file():
        with suppress(InvalidFile):  # a damaged checkpoint costs the work since the start, never the training
            training.restore(read_tensors(path)[0])
    writable_folder(path.parent)
    with suitable_threads(sum(parameter.numel() for parameter in prepared.module.parameters())):
        resumed = training.done
        kept = time.perf_counter()
        try:
            while not training.over:
                training.step()
                if time.perf_counter() - kept >= checkpoint_every:
                    write_tensors(path, training.snapshot(), _described(prepared))
                    kept = time.perf_counter()
                progress(training.done, training.training.steps)
        finally:
            if training.done > resumed:
                write_tensors(path, training.snapshot(), _described(prepared))
        return _trained(prepared)


def checkpoint(prepared: PreparedTraining, folder: Path) -> Path:
    """Where a training is kept, under way and finished; another training has another file."""
    return folder / "trainings" / f"{prepared.key}.safetensors"


def _trained(prepared: PreparedTraining) -> Trained:
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
        epsilon=_epsilon(prepared, training.done),
        epsilon_of_a_round=_epsilon(prepared, 1),
    )


def _epsilon(prepared: PreparedTraining, steps: int) -> float | None:
    """What so many rounds of a client guarantee each of its examples."""
    private = [part for part in getattr(prepared.defence, "defences", (prepared.defence,)) if isinstance(part, DPSGD)]
    if not private:
        return None
    training = prepared.training
    rate = min(1.0, training.training.batch_size / len(training.data))
    try:
        return min(epsilon(part.noise_multiplier, rate, steps, DELTA) for part in private)
    except InvalidCase:  # the accountant is an optional dependency
        return float("nan")


def _described(prepared: PreparedTraining) -> dict[str, str]:
    plan = prepared.plan
    return {"model": plan.model, "dataset": plan.dataset, "defence": repr(prepared.defence), "seed": str(plan.seed)}


def _loaded(module: nn.Module, state: ModelState) -> nn.Module:
    trained = copy.deepcopy(module)
    held = {**dict(trained.named_parameters()), **dict(trained.named_buffers())}
    with torch.no_grad():
        for name, tensor in {**state.params, **state.buffers}.items():
            held[name].copy_(tensor)
    return trained.eval()


def _given(recipe: Recipe) -> Callable[[], Recipe]:
    return lambda: recipe
