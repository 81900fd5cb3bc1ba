"""CIFAR-10 and CIFAR-100 in their original binary version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from leakgauge.data.datasets import Dataset
from leakgauge.data.files import find, find_required, from_bytes, from_labels, read, require_root
from leakgauge.data.formats import CIFAR_IMAGE, parse_cifar
from leakgauge.errors import InvalidFile
from leakgauge.types import Batch


@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10 [Krizhevsky, 2009]; training batches that are not there are left out."""

    def __call__(self, root: Path | None) -> Dataset:
        root = require_root(root, source=self, needs="the binary version of CIFAR-10")
        return _read_cifar(
            name="cifar10",
            folders=(root, root / "cifar-10-batches-bin"),
            train_files=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
            test_file="test_batch.bin",
            names_file="batches.meta.txt",
            num_classes=(10,),
            label_column=0,
        )


@dataclass(frozen=True)
class Cifar100:
    """CIFAR-100 [Krizhevsky, 2009] with its 100 fine classes, or the 20 ``coarse`` ones."""

    coarse: bool = False

    def __call__(self, root: Path | None) -> Dataset:
        root = require_root(root, source=self, needs="the binary version of CIFAR-100")
        return _read_cifar(
            name="cifar100-coarse" if self.coarse else "cifar100",
            folders=(root, root / "cifar-100-binary"),
            train_files=("train.bin",),
            test_file="test.bin",
            names_file="coarse_label_names.txt" if self.coarse else "fine_label_names.txt",
            num_classes=(20, 100),
            label_column=0 if self.coarse else 1,
        )


def _read_cifar(
    *,
    name: str,
    folders: tuple[Path, ...],
    train_files: tuple[str, ...],
    test_file: str,
    names_file: str,
    num_classes: tuple[int, ...],
    label_column: int,
) -> Dataset:
    test = find_required((test_file,), folders=folders)
    found = (find((file,), folders=(test.parent,)) for file in train_files)
    train = tuple(path for path in found if path is not None)

    def batch(paths: Sequence[Path]) -> Batch:
        if not paths:
            return Batch(torch.empty(0, *CIFAR_IMAGE), torch.empty(0, dtype=torch.int64))
        records = [parse_cifar(read(path), num_classes=num_classes, name=str(path)) for path in paths]
        images = np.concatenate([record.images for record in records])
        labels = np.concatenate([record.labels[:, label_column] for record in records])
        return Batch(from_bytes(images), from_labels(labels))

    return Dataset(
        name=name,
        train=batch(train),
        test=batch((test,)),
        class_names=_class_names(test.parent / names_file, num_classes[label_column]),
    )


def _class_names(path: Path, num_classes: int) -> tuple[str, ...]:
    if not path.is_file():
        return tuple(str(number) for number in range(num_classes))
    names = tuple(read(path).decode("utf-8", errors="replace").split())
    if len(names) != num_classes:
        raise InvalidFile(f"{path} names {len(names)} classes instead of {num_classes}; restore it or remove it.")
    return names
