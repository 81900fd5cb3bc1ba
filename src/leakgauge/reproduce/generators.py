"""Attacks that search a generator, which is trained first: on public images, of which no update is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from torch import Generator

from leakgauge.attacks.base import SteppedAttack, Stepper
from leakgauge.attacks.budget import Around
from leakgauge.attacks.matching import TrainedGenerator
from leakgauge.data import Dataset
from leakgauge.errors import InvalidCase
from leakgauge.files import writable_folder
from leakgauge.fingerprint import digest, training_code
from leakgauge.generative import DCGAN, GeneratorTraining, GeneratorTrainingPlan, train_generator
from leakgauge.progress import Progress
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.training.models import require_training_images

_DIGESTED = 2048


@dataclass(frozen=True)
class WithGenerator(SteppedAttack, Around):
    """Another attack, its generator a `DCGAN` that is trained on the training images of the dataset.

    The ``file`` is made by ``prepare`` and left out of the ``repr``: the rest decides what it holds.
    """

    attack: SteppedAttack
    width: int = 16
    latent: int = 64
    training: GeneratorTrainingPlan = field(default_factory=GeneratorTrainingPlan)
    file: Path | None = field(default=None, repr=False, compare=False)

    def prepare(self, dataset: Dataset, *, seed: int, folder: Path, progress: Progress) -> WithGenerator:
        """With a trained generator: the one that ``folder`` holds, or one whose training is resumed there or begun."""
        require_training_images(dataset, "The generator needs")
        network, plan = DCGAN(dataset.space.shape, self.width, self.latent), replace(self.training, seed=seed)
        key = digest(
            (training_code(), repr(network), repr(plan), dataset.name),
            (dataset.train.labels, dataset.train.inputs[:_DIGESTED]),
            (len(dataset.train),),
        )
        own = writable_folder(folder / key)
        file = own / "generator.safetensors"
        if not file.is_file():
            train_generator(
                GeneratorTraining(dataset.train.inputs, network, plan), own, progress, {"dataset": dataset.name}
            )
        return replace(self, file=file)

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Stepper:
        return self._equipped().search(observations, generator=generator)

    def _equipped(self) -> SteppedAttack:
        if self.file is None:
            raise InvalidCase(
                f"{type(self).__name__} has no generator before it is `prepare`d; train one with "
                "`leakgauge train-generator` and name its file to use the attack on its own."
            )
        equipped: SteppedAttack = _equip(self.attack, TrainedGenerator(str(self.file)))
        return equipped


def _equip(part: Any, generator: TrainedGenerator) -> Any:
    """The part of an attack, however deep, with this generator in the place of its own."""
    if isinstance(part, TrainedGenerator):
        return generator
    if isinstance(part, tuple):
        return tuple(_equip(one, generator) for one in part)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    own = {entry.name: getattr(part, entry.name) for entry in fields(part) if entry.init}
    changed = {name: new for name, old in own.items() if (new := _equip(old, generator)) != old}
    return replace(part, **changed) if changed else part
