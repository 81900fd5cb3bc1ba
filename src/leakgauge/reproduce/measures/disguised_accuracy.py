"""Accuracies of models that were trained on disguised images."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge import params as tree
from leakgauge.data import PictureFolder
from leakgauge.defences import DELTA, Defence, NoDefence, guaranteed_epsilon
from leakgauge.encodings.crops import Cropping
from leakgauge.encodings.keys import SeededKeys
from leakgauge.encodings.public_patches import Patches, cached_patches, opencv
from leakgauge.encodings.schemes import Scheme
from leakgauge.files import read_tensors, writable_folder, write_tensors
from leakgauge.models import ModelFactory
from leakgauge.progress import Tick
from leakgauge.protocol.learner import learner_and_state
from leakgauge.randomness import seeded
from leakgauge.reproduce.run import data_key
from leakgauge.reproduce.table import Bench, Found, Measure, Measured
from leakgauge.threads import model_threads
from leakgauge.training import DefendedTraining, Recipe, train
from leakgauge.training.disguises import Disguise, Encrypted, Moved, hits_in_disguise
from leakgauge.training.models import model_for
from leakgauge.training.prediction import hits
from leakgauge.types import Batch

PLAIN, DISGUISED = "plain", "in disguise"
_ASKED = {PLAIN: "plain images", DISGUISED: "ten disguises of each image"}


@dataclass(frozen=True)
class Work:
    """A training at a scale. ``private`` training images are trained on, and ``public`` others mixed in.

    None stands for all: of the training images, or of the test images that accuracy is taken on. ``signless`` is the
    model for images whose signs a mask flips, if that is another. ``moved`` is how training images are moved in every
    epoch anew. ``photographs`` is a folder below the data root that public images are cut from, as
    patches rich in SIFT key points; where it is missing they are other images of the dataset.
    """

    model: ModelFactory
    recipe: Recipe
    private: int | None
    public: int
    tested: int | None
    runs: int
    signless: ModelFactory | None = None
    moved: Cropping | None = None
    photographs: str | None = None


@dataclass(frozen=True)
class DisguisedAccuracy(Measure):
    """The accuracy of a model that learnt from disguised images: on "plain" test images, or on ones "in disguise".

    The latter have ten disguises each. A scheme disguises with the public images at hand.
    """

    work: Work
    disguise: Disguise | Scheme
    defence: Defence

    @property
    def model(self) -> ModelFactory:
        flipped = isinstance(self.disguise, Scheme) and self.disguise.signed
        return (self.work.signless if flipped else None) or self.work.model

    @property
    def undefended(self) -> bool:
        return isinstance(self.defence, NoDefence)

    def planned(self) -> dict[str, Any]:
        recipe = self.work.recipe
        return {
            "disguise": Encrypted(self.disguise) if isinstance(self.disguise, Scheme) else self.disguise,
            "defence": self.defence,
            "model": self.model,
            "batch_size": recipe.batch_size,
            "learning_rate": recipe.learning_rate,
            "schedule": recipe.schedule,
            "weight_decay": recipe.weight_decay if self.undefended else 0.0,
            "augmentation": self.work.moved if self.undefended else None,
        }

    def check(self, bench: Bench) -> None:
        super().check(bench)
        if _photographs(bench, self.work, self.disguise) is not None:
            opencv()

    def __call__(self, bench: Bench, names: Sequence[str]) -> dict[str, Found]:
        work, begun = self.work, time.perf_counter()
        runs = [self._run(bench, bench.seed + run, names) for run in range(work.runs)]
        seconds = (time.perf_counter() - begun) / work.runs
        test = bench.data.test[: work.tested]
        guess = float(test.labels.bincount().max()) / len(test)
        return {
            name: Found.of(
                {"accuracy": _accuracy([right[name] for right, _ in runs])},
                {"accuracy": Measured.of([[guess]])},
                seconds,
                {**runs[-1][1], "asked": _ASKED[name]},
            )
            for name in names
        }

    def _run(self, bench: Bench, seed: int, names: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Who is right about each test image, by name, and what was run."""
        work, data, device = self.work, bench.data, torch.device(bench.options.device)
        private, public, source = _split(bench, work, self.disguise, seed)
        private, public = Batch(private.inputs.to(device), private.labels.to(device)), public.to(device)
        test = data.test[: work.tested]
        test = Batch(test.inputs.to(device), test.labels.to(device))
        module = model_for(data, self.model, seed=seed).to(device)
        disguise = Encrypted(self.disguise, public) if isinstance(self.disguise, Scheme) else self.disguise
        steps = work.recipe.training(len(private)).steps
        found = {name: torch.full((len(test),), torch.nan) for name in names}
        setting: dict[str, object] = self.described() | {
            "private_images": len(private),
            "public_images": len(public),
            "public_source": source,
        }
        with model_threads(module):
            if self.undefended:
                self._learn(bench, module, private, disguise, seed)
                learner, seen = learner_and_state(module)
                diverged = not tree.is_finite(seen.params)
            else:
                training = self._learn_defended(bench, module, private, disguise, seed)
                learner, seen, steps, diverged = training.learner, training.state, training.done, training.diverged
            generator = seeded(seed, "predict")
            if not diverged and PLAIN in names:
                found[PLAIN] = hits(learner, seen, test, NoDefence(), generator=generator)
            if not diverged and DISGUISED in names:
                found[DISGUISED] = hits_in_disguise(learner, seen, test, disguise, generator=generator)
        setting |= {"steps": steps, "diverged": diverged}
        rate = min(1.0, work.recipe.batch_size / len(private))
        if (guarantee := guaranteed_epsilon(self.defence, rate, steps)) is not None:
            setting |= {"epsilon": guarantee, "delta": DELTA}
        return {name: own.cpu() for name, own in found.items()}, setting

    def _learn(self, bench: Bench, module: nn.Module, private: Batch, disguise: Disguise, seed: int) -> None:
        """Train plainly, or read what a table before this one trained in the same way."""
        work, recipe = self.work, self.work.recipe
        words = (repr(self.model), repr(recipe), repr(self.disguise), repr(work), str(len(private)), str(seed))
        path = writable_folder(bench.folder) / f"trained-{data_key(words, bench)}.safetensors"
        if path.is_file():
            module.load_state_dict(read_tensors(path)[0])
            return
        train(
            module,
            private,
            recipe.training(len(private)),
            schedule=recipe.schedule,
            disguise=disguise if work.moved is None else Moved(disguise, work.moved),
            weight_decay=recipe.weight_decay,
            layout=torch.channels_last,
            generator=seeded(seed, "train"),
            progress=bench.begin(f"training, run {seed - bench.seed + 1}"),
        )
        write_tensors(path, module.state_dict(), {"model": repr(self.model), "disguise": repr(self.disguise)})

    def _learn_defended(
        self, bench: Bench, module: nn.Module, private: Batch, disguise: Disguise, seed: int
    ) -> DefendedTraining:
        recipe = self.work.recipe
        learner, state = learner_and_state(module, mode="train")
        settings = recipe.training(len(private))
        training = DefendedTraining(
            learner, state, private, self.defence, settings, recipe.schedule, disguise, seed=seed
        )
        progress = bench.begin(f"training, run {seed - bench.seed + 1}")
        while not training.over:
            training.step()
            progress(Tick(training.done, training.done / settings.steps))
        return training


def _accuracy(runs: Sequence[Tensor]) -> Measured:
    """Over runs; of a single one, with the standard error over its test images."""
    if len(runs) > 1:
        return Measured.of([right.tolist() for right in runs])
    return replace(Measured.of([runs[0].tolist()], per_image=True), deviation=None)


def _split(bench: Bench, work: Work, disguise: Disguise | Scheme, seed: int) -> tuple[Batch, Tensor, str]:
    """Private images, public ones and where those are from.

    Where all training images are private, public ones are among them, unless there are photographs to cut them from.
    """
    train = bench.data.train
    order = torch.randperm(len(train), generator=seeded(seed, "split"))
    count = len(train) if work.private is None else min(work.private, len(train) // 2)
    public = order[count:] if count < len(train) else order
    private = train[order[:count]]
    if (folder := _photographs(bench, work, disguise)) is not None:
        return private, _patches(bench, folder, work.public), f"patches of {folder.name}"
    return private, train.inputs[public[: work.public]], f"other images of {bench.data.name}"


def _photographs(bench: Bench, work: Work, disguise: Disguise | Scheme) -> Path | None:
    """The folder that public images are cut from; None where none are mixed in or it is missing."""
    root = bench.options.data_root
    if root is None or work.photographs is None or not isinstance(disguise, Scheme) or not disguise.public_per_encoding:
        return None
    return folder if (folder := root / work.photographs).is_dir() else None


def _patches(bench: Bench, folder: Path, count: int) -> Tensor:
    """Patches of photographs, cut once for all rows and kept."""
    patches = Patches(size=bench.data.test.inputs.shape[-1])
    file = bench.folder / f"patches-{data_key((repr(patches), str(count), folder.name), bench)}.safetensors"
    keys, progress = SeededKeys(seeded(bench.seed, "patches")), bench.begin("cutting public patches")
    return cached_patches(file, patches, PictureFolder(folder), count, source=folder.name, keys=keys, progress=progress)
