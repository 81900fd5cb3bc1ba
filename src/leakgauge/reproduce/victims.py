"""Whose images are attacked."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from leakgauge.data import Dataset, DataSource, Photos
from leakgauge.data.datasets import rank_within_class
from leakgauge.errors import InvalidCase
from leakgauge.protocol.learner import learner_and_state
from leakgauge.reproduce.table import Scale
from leakgauge.space import InputSpace


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


def train_head_only(module: nn.Module, space: InputSpace) -> None:
    """Freeze everything below the classifier, so that a client's pass through it keeps nothing for a gradient."""
    learner, state = learner_and_state(module)
    head = learner.classifier(state, space.probe(2, state))
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.startswith(f"{head}."))
