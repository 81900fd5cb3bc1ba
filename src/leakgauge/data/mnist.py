"""MNIST in its original idx files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leakgauge.data.datasets import Dataset
from leakgauge.data.files import find, find_required, from_bytes, from_labels, read, require_root
from leakgauge.data.formats import check_labels, parse_idx
from leakgauge.errors import InvalidFile
from leakgauge.types import Batch

MNIST_CLASSES = 10


@dataclass(frozen=True)
class Mnist:
    """MNIST [LeCun et al., 1998], plain or gzipped; the training files may be left out."""

    def __call__(self, root: Path | None) -> Dataset:
        root = require_root(root, source=self, needs="the idx files of MNIST")
        folders = (root, root / "MNIST" / "raw", root / "mnist")
        test = _read_mnist("t10k", folders)
        names = (*_mnist_names("train", "images"), *_mnist_names("train", "labels"))
        has_train = find(names, folders=folders) is not None
        return Dataset(
            name="mnist",
            train=_read_mnist("train", folders) if has_train else Batch(test.inputs[:0], test.labels[:0]),
            test=test,
            class_names=tuple(str(digit) for digit in range(MNIST_CLASSES)),
        )


def _mnist_names(split: str, content: str) -> tuple[str, str]:
    plain = f"{split}-{content}-idx{3 if content == 'images' else 1}-ubyte"
    return plain, f"{plain}.gz"


def _read_mnist(split: str, folders: tuple[Path, ...]) -> Batch:
    def array(content: str, num_dimensions: int) -> tuple[Path, NDArray[np.uint8]]:
        path = find_required(_mnist_names(split, content), folders=folders)
        return path, parse_idx(read(path), num_dimensions=num_dimensions, name=str(path))

    images_path, images = array("images", 3)
    labels_path, labels = array("labels", 1)
    check_labels(labels, limit=MNIST_CLASSES, name=str(labels_path))
    if len(images) != len(labels):
        raise InvalidFile(
            f"{images_path} has {len(images)} images but {labels_path} has {len(labels)} labels; "
            "restore the original pair."
        )
    return Batch(from_bytes(images[:, None]), from_labels(labels))
