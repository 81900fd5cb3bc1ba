"""Whose images are attacked, and the model they were sent: both a function of the experiment and the seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from leakgauge.data import Dataset, DataSource, Photos
from leakgauge.data.datasets import rank_within_class
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import read_tensors, writable_folder, write_tensors
from leakgauge.fingerprint import digest
from leakgauge.models import Normalisation, build
from leakgauge.protocol.learner import learner_and_state
from leakgauge.randomness import seeded
from leakgauge.reproduce.experiment import Scale, Setting
from leakgauge.space import InputSpace
from leakgauge.threads import suitable_threads
from leakgauge.training import accuracy, train

TrainProgress = Callable[[int, int], None]

_REFERENCE = 2048
_TESTED = 500
"""Test images that the accuracy is taken on; all of them would take longer than the attacks."""


@dataclass(frozen=True)
class Victim:
    """A model in eval mode; ``accuracy``, on the first test images, only if it was trained."""

    module: nn.Module
    accuracy: float | None


def embedded(size: int = 16) -> Dataset:
    """The embedded photographs, the classes in turn, in place of a dataset that is not there."""
    photos = Photos(size=size)()
    order = rank_within_class(photos.test.labels).argsort(stable=True)
    return Dataset(photos.name, photos.train, photos.test[order], photos.class_names)


def dataset_of(name: str, source: DataSource, root: Path | None, scale: Scale, *, stands_in: bool = False) -> Dataset:
    """The data of an experiment, or embedded photographs where those will do."""
    if root is not None:
        return source(root)
    if scale == "smoke" or stands_in:
        return embedded(16 if scale == "smoke" else 32)
    raise InvalidCase(
        f"{name} at scale {scale!r} needs the data of {source!r}; name its folder with --data-root, or use --scale "
        "smoke, which makes do with embedded photographs."
    )


def victim(setting: Setting, dataset: Dataset, seed: int, folder: Path, progress: TrainProgress) -> Victim:
    """The model of a row, trained if it is to be; trained weights are kept in ``folder`` and read again."""
    reference = dataset.train.inputs if len(dataset.train) else dataset.test.inputs
    normalisation = Normalisation.of(reference[:_REFERENCE])
    classes = setting.classes or dataset.num_classes
    module = build(setting.model, dataset.space.shape, classes, seed=seed, normalisation=normalisation)
    module.eval()
    if setting.training is None:
        return Victim(module, None)
    if len(dataset.train) == 0:
        raise InvalidCase(
            f"The trained models need training images, but the folder holds only the test images of {dataset.name!r}; "
            "add the training files to --data-root."
        )
    key = digest(
        (repr(setting.model), repr(setting.training), dataset.name),
        (dataset.train.labels, dataset.train.inputs[:_REFERENCE], dataset.test.labels[:_TESTED]),
        (seed,),
    )
    path = writable_folder(folder) / f"{key}.safetensors"
    if (score := _loaded(module, path)) is None:
        with suitable_threads(sum(parameter.numel() for parameter in module.parameters())):
            train(module, dataset.train, setting.training, generator=seeded(seed, "train"), progress=progress)
            score = accuracy(module, dataset.test[:_TESTED])
        described = {"model": repr(setting.model), "training": repr(setting.training), "dataset": dataset.name}
        write_tensors(path, module.state_dict(), described | {"accuracy": repr(score), "seed": str(seed)})
    return Victim(module.eval(), score)


def train_head_only(module: nn.Module, space: InputSpace) -> None:
    """Freeze everything below the classifier, so that a client's pass through it keeps nothing for a gradient."""
    learner, state = learner_and_state(module)
    head = learner.classifier(state, space.probe(2, state))
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.startswith(f"{head}."))


def _loaded(module: nn.Module, path: Path) -> float | None:
    """The accuracy that was noted with the weights, after loading them; None if they are not there or unusable."""
    if not path.is_file():
        return None
    try:
        tensors, described = read_tensors(path)
        module.load_state_dict(tensors)
        return float(described["accuracy"])
    except (InvalidFile, RuntimeError, KeyError, ValueError) as error:
        raise InvalidFile(f"The trained weights in {path} are damaged; delete the file.") from error
