"""Accuracies of models that were trained on disguised images."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakgauge.defences import DELTA, Defence, NoDefence, guaranteed_epsilon
from leakgauge.encodings.schemes import Scheme
from leakgauge.models import ModelFactory
from leakgauge.progress import Tick
from leakgauge.protocol.learner import learner_and_state
from leakgauge.randomness import seeded
from leakgauge.reproduce.table import Bench, Found, Measure, Measured
from leakgauge.threads import model_threads
from leakgauge.training import DefendedTraining, Recipe
from leakgauge.training.disguises import Disguise, Encrypted, hits_in_disguise
from leakgauge.training.models import model_for
from leakgauge.training.prediction import hits
from leakgauge.types import Batch

PLAIN, DISGUISED = "plain", "in disguise"
_ASKED = {PLAIN: "plain images", DISGUISED: "ten disguises of each image"}


@dataclass(frozen=True)
class Work:
    """A training at a scale. ``private`` training images are trained on, and ``public`` others mixed in.

    None stands for all: of the training images, or of the test images that accuracy is taken on.
    """

    model: ModelFactory
    recipe: Recipe
    private: int | None
    public: int
    tested: int | None
    runs: int


@dataclass(frozen=True)
class DisguisedAccuracy(Measure):
    """The accuracy of a model that learnt from disguised images: on "plain" test images, or on ones "in disguise".

    The latter have ten disguises each. A scheme disguises with the public images at hand.
    """

    work: Work
    disguise: Disguise | Scheme
    defence: Defence

    def planned(self) -> dict[str, Any]:
        return {
            "disguise": Encrypted(self.disguise) if isinstance(self.disguise, Scheme) else self.disguise,
            "defence": self.defence,
            "model": self.work.model,
            "batch_size": self.work.recipe.batch_size,
            "learning_rate": self.work.recipe.learning_rate,
            "schedule": self.work.recipe.schedule,
        }

    def __call__(self, bench: Bench, names: Sequence[str]) -> dict[str, Found]:
        work, begun = self.work, time.perf_counter()
        runs = [self._run(bench, bench.seed + run, names) for run in range(work.runs)]
        seconds = (time.perf_counter() - begun) / work.runs
        test = bench.data.test[: work.tested]
        guess = float(test.labels.bincount().max()) / len(test)
        return {
            name: Found.of(
                {"accuracy": Measured.of([right[name].tolist() for right, _ in runs])},
                {"accuracy": Measured.of([[guess]])},
                seconds,
                {**runs[-1][1], "asked": _ASKED[name]},
            )
            for name in names
        }

    def _run(self, bench: Bench, seed: int, names: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Who is right about each test image, by name, and what was run."""
        work, data, device = self.work, bench.data, torch.device(bench.options.device)
        private, public = _split(data.train, work, seed)
        private, public = Batch(private.inputs.to(device), private.labels.to(device)), public.to(device)
        test = data.test[: work.tested]
        test = Batch(test.inputs.to(device), test.labels.to(device))
        module = model_for(data, work.model, seed=seed).to(device)
        learner, state = learner_and_state(module, mode="train")
        disguise = Encrypted(self.disguise, public) if isinstance(self.disguise, Scheme) else self.disguise
        settings = work.recipe.training(len(private))
        training = DefendedTraining(
            learner, state, private, self.defence, settings, work.recipe.schedule, disguise, seed=seed
        )
        progress = bench.begin(f"training, run {seed - bench.seed + 1}")
        with model_threads(module):
            while not training.over:
                training.step()
                progress(Tick(training.done, training.done / settings.steps))
            generator, seen = seeded(seed, "predict"), training.state
            found = {name: torch.full((len(test),), torch.nan) for name in names}
            if not training.diverged and PLAIN in names:
                found[PLAIN] = hits(learner, seen, test, NoDefence(), generator=generator)
            if not training.diverged and DISGUISED in names:
                found[DISGUISED] = hits_in_disguise(learner, seen, test, disguise, generator=generator)
        setting: dict[str, object] = self.described() | {
            "private_images": len(private),
            "public_images": len(public),
            "steps": training.done,
            "diverged": training.diverged,
        }
        rate = min(1.0, settings.batch_size / len(private))
        if (guarantee := guaranteed_epsilon(self.defence, rate, training.done)) is not None:
            setting |= {"epsilon": guarantee, "delta": DELTA}
        return {name: own.cpu() for name, own in found.items()}, setting


def _split(train: Batch, work: Work, seed: int) -> tuple[Batch, Tensor]:
    """Private and public images; where all training images are private, public ones are among them."""
    order = torch.randperm(len(train), generator=seeded(seed, "split"))
    count = len(train) if work.private is None else min(work.private, len(train) // 2)
    public = order[count:] if count < len(train) else order
    return train[order[:count]], train.inputs[public[: work.public]]
