"""Accuracies of models that were trained on disguised images, for studies."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.defences import DELTA, Defence, NoDefence, guaranteed_epsilon
from leakgauge.encodings.keys import KeySource
from leakgauge.encodings.schemes import InsideDataset
from leakgauge.models import Compact, ModelFactory, ResNet
from leakgauge.protocol.encoding import Mixing
from leakgauge.protocol.learner import learner_and_state
from leakgauge.randomness import seeded
from leakgauge.reproduce.experiment import Scale
from leakgauge.reproduce.result import Measured
from leakgauge.reproduce.study import Bench, Found
from leakgauge.schedules import CosineDecay, StepDecay
from leakgauge.threads import model_threads
from leakgauge.training import DefendedTraining, Recipe
from leakgauge.training.disguises import Disguise, Undisguised, hits_in_disguise
from leakgauge.training.models import model_for
from leakgauge.training.prediction import hits
from leakgauge.types import Batch

Disguising = Callable[[Tensor], Disguise]
"""A disguise that may use the public images."""


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


WORK: Mapping[Scale, Work] = {
    "smoke": Work(Compact(width=4), Recipe(14, 0.02, CosineDecay(), steps=3), private=56, public=56, tested=28, runs=1),
    "cpu": Work(
        Compact(width=16), Recipe(64, 0.05, CosineDecay(), steps=600), private=5000, public=5000, tested=1000, runs=1
    ),
    "full": Work(
        ResNet(depth=18),
        Recipe(128, 0.1, StepDecay((0.5, 0.75)), epochs=200),
        private=None,
        public=10_000,
        tested=None,
        runs=5,
    ),
}

SHRUNK: Mapping[Scale, str] = {
    "smoke": "56 training images, three steps, one run: this shows that the code runs.",
    "cpu": "5,000 training images instead of 50,000, 600 steps of 64 images instead of 200 epochs, a network of three "
    "convolutions of 16 channels instead of ResNet-18, no augmentation, 1,000 test images, one run instead of five.",
    "full": "Without the augmentation by crops and mirroring that is usual on CIFAR-10, which the paper does not speak "
    "of.",
}


@dataclass(frozen=True)
class FixedShares(InsideDataset):
    """sigma o ((1 - alpha) x_i + alpha x_j) [Huang et al., 2020, section 5.2]."""

    k: int = 2
    largest: float = 1.0
    alpha: float = 0.5

    def draw(self, num_private: int, num_public: int, *, keys: KeySource) -> Mixing:
        drawn = super().draw(num_private, num_public, keys=keys)
        shares = torch.tensor([1 - self.alpha, self.alpha], dtype=torch.float64)
        return drawn._replace(coefficients=shares.expand(num_private, 2).contiguous())


@dataclass(frozen=True)
class Trains:
    """Measures a training: its accuracy on plain test images, and on disguised ones, averaged over ten disguises.

    ``plain`` and ``disguised`` are the labels of the rows they fill, or None.
    """

    plain: str | None
    disguised: str | None
    disguising: Disguising = lambda public: Undisguised()
    defence: Defence = NoDefence()

    def __call__(self, bench: Bench) -> dict[str, Found]:
        work, begun = WORK[bench.scale], time.perf_counter()
        scores: dict[str, list[list[float]]] = {label: [] for label in (self.plain, self.disguised) if label}
        setting: dict[str, object] = {}
        for run in range(work.runs):
            trained = self._run(bench, work, bench.seed + run)
            setting = trained.setting
            for label, found in ((self.plain, trained.plain), (self.disguised, trained.disguised)):
                if label:
                    scores[label].append(found.tolist())
        seconds = (time.perf_counter() - begun) / work.runs
        guess = float(bench.data.test.labels[: work.tested].bincount().max()) / len(bench.data.test[: work.tested])
        return {
            label: Found(
                ours={"accuracy": Measured.of(own)},
                null={"accuracy": Measured.of([[guess]])},
                seconds=seconds,
                setting={**setting, "asked": "plain images" if label == self.plain else "ten disguises of each image"},
            )
            for label, own in scores.items()
        }

    def _run(self, bench: Bench, work: Work, seed: int) -> _Trained:
        data, device = bench.data, torch.device(bench.device)
        private, public = _split(data.train, work, seed)
        private, public = Batch(private.inputs.to(device), private.labels.to(device)), public.to(device)
        test = data.test[: work.tested]
        test = Batch(test.inputs.to(device), test.labels.to(device))
        module = model_for(data, work.model, seed=seed).to(device)
        learner, state = learner_and_state(module, mode="train")
        disguise, settings = self.disguising(public), work.recipe.training(len(private))
        training = DefendedTraining(
            learner, state, private, self.defence, settings, work.recipe.schedule, disguise, seed=seed
        )
        with model_threads(module):
            while not training.over:
                training.step()
                bench.watch.step(f"training, run {seed - bench.seed + 1}", training.done / settings.steps)
            generator = seeded(seed, "predict")
            seen, nothing = training.state, torch.full((len(test),), torch.nan)
            plain = disguised = nothing
            if not training.diverged:
                plain = hits(learner, seen, test, NoDefence(), generator=generator) if self.plain else nothing
                if self.disguised:
                    disguised = hits_in_disguise(learner, seen, test, disguise, generator=generator)
        setting: dict[str, object] = {
            "disguise": repr(disguise),
            "defence": repr(self.defence),
            "model": repr(work.model),
            "private_images": len(private),
            "public_images": len(public),
            "steps": training.done,
            "batch_size": settings.batch_size,
            "learning_rate": settings.learning_rate,
            "schedule": repr(work.recipe.schedule),
            "diverged": training.diverged,
        }
        rate = min(1.0, settings.batch_size / len(private))
        if (guarantee := guaranteed_epsilon(self.defence, rate, training.done)) is not None:
            setting |= {"epsilon": guarantee, "delta": DELTA}
        return _Trained(plain.cpu(), disguised.cpu(), setting)


@dataclass(frozen=True)
class _Trained:
    plain: Tensor
    disguised: Tensor
    setting: dict[str, object]


def _split(train: Batch, work: Work, seed: int) -> tuple[Batch, Tensor]:
    """Private and public images; where all training images are private, public ones are among them."""
    order = torch.randperm(len(train), generator=seeded(seed, "split"))
    count = len(train) if work.private is None else min(work.private, len(train) // 2)
    public = order[count:] if count < len(train) else order
    return train[order[:count]], train.inputs[public[: work.public]]
