"""What benchmarks/quality.py compares: which images are attacked, by which method, and what stands for their nulls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.data import Cifar10, Photos
from leakgauge.data.datasets import rank_within_class
from leakgauge.errors import InvalidCase
from leakgauge.types import Batch

Method = Literal["baseline", "best"]
Row = dict[str, Any]

METHODS: tuple[Method, ...] = ("baseline", "best")


@dataclass(frozen=True)
class Victims:
    """The test images in the order in which they are numbered; neighbours are unrelated."""

    name: str
    batch: Batch
    num_classes: int


@dataclass(frozen=True)
class Task:
    """One attack; arrays, so that they travel to a worker as plain bytes."""

    method: Method
    model: str
    seconds: float
    image: int
    null: bool
    victim: NDArray[np.float32]
    label: int
    observed: NDArray[np.float32]
    """Whose gradient is attacked: the victim's, or in a null another's."""
    neighbour: NDArray[np.float32]
    num_classes: int

    @property
    def key(self) -> tuple[str, int, bool]:
        return self.method, self.image, self.null


def load_victims(data_root: Path | None) -> Victims:
    if data_root is not None:
        dataset = Cifar10()(data_root)
        return Victims("CIFAR-10 test images", dataset.test, dataset.num_classes)
    dataset = Photos()(None)
    # One photograph after the other, as neighbours from the same one would overlap.
    order = rank_within_class(dataset.test.labels).argsort(stable=True)
    return Victims("embedded photographs, not CIFAR-10", dataset.test[order], dataset.num_classes)


def plan(
    victims: Victims, methods: Iterable[Method], *, model: str, seconds: float, first: int, images: int, nulls: int
) -> list[Task]:
    """Every attack of a comparison, image by image; the nulls are of our method alone."""
    total = len(victims.batch)
    if images < 1 or first < 0 or first + images > total:
        raise InvalidCase(
            f"Images {first} to {first + images - 1} were asked for, but the {victims.name} are numbered 0 to "
            f"{total - 1}; choose --first and --images within them."
        )
    pixels = victims.batch.inputs.numpy()

    def task(method: Method, image: int, null: bool) -> Task:
        return Task(
            method=method,
            model=model,
            seconds=seconds,
            image=image,
            null=null,
            victim=pixels[image],
            label=int(victims.batch.labels[image]),
            observed=pixels[unrelated(image, total) if null else image],
            neighbour=pixels[(image + 1) % total],
            num_classes=victims.num_classes,
        )

    chosen = range(first, first + images)
    attacks = [task(method, image, False) for image in chosen for method in methods]
    return attacks + [task("best", image, True) for image in chosen[:nulls] if "best" in methods]


def victim_and_next(images: Batch, first: int, number: int, size: int) -> tuple[Batch, Batch]:
    """The images of a victim, counted from ``first`` on, and those of the next, which its null is scored against."""
    last = first + (number + 2) * size - 1
    if first < 0 or last >= len(images):
        raise InvalidCase(
            f"Victim {number} of {size} images from {first} on and the next reach to image {last}, but there are "
            f"{len(images)}; lower --first or the number of victims."
        )
    places = (range(first + at * size, first + (at + 1) * size) for at in (number, number + 1))
    own, following = (images[torch.tensor(place)] for place in places)
    return own, following


def unrelated(image: int, total: int) -> int:
    """The image whose gradient a null attacks: half the test split away."""
    return (image + total // 2) % total
