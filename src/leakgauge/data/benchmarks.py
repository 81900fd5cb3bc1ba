"""CIFAR-10, CIFAR-100 and MNIST in their original files: bytes in, arrays out, and no byte unaccounted for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.data.datasets import Dataset
from leakgauge.data.files import find, find_required, from_bytes, from_labels, read, require_root
from leakgauge.errors import InvalidFile
from leakgauge.types import Batch

CIFAR_IMAGE = (3, 32, 32)

IDX_UNSIGNED_BYTE = 0x08


class CifarRecords(NamedTuple):
    """``labels`` n k, one column per label byte; ``images`` n 3 32 32."""

    labels: NDArray[np.uint8]
    images: NDArray[np.uint8]


def parse_cifar(content: bytes, *, num_classes: tuple[int, ...], name: str) -> CifarRecords:
    """Records of one label byte per entry of ``num_classes``, then the red, green and blue planes [Krizhevsky, 2009].

    >>> parse_cifar(bytes([7]) + bytes(3072), num_classes=(10,), name="one.bin").labels
    array([[7]], dtype=uint8)
    """
    num_labels = len(num_classes)
    record = num_labels + math.prod(CIFAR_IMAGE)
    if not content or len(content) % record:
        raise InvalidFile(
            f"{name} has {len(content)} bytes, but a CIFAR file with {num_labels} label byte(s) per image has "
            f"a positive multiple of {record}; replace it with a complete copy of the binary version."
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, record)
    labels = records[:, :num_labels]
    for limit, column in zip(num_classes, labels.T, strict=True):
        check_labels(column, limit=limit, name=name)
    return CifarRecords(labels, records[:, num_labels:].reshape(-1, *CIFAR_IMAGE))


def parse_idx(content: bytes, *, num_dimensions: int, name: str) -> NDArray[np.uint8]:
    """An array of unsigned bytes: ``0 0 8 d``, ``d`` big-endian 32-bit sizes, then the values [LeCun et al., 1998].

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 9]), num_dimensions=1, name="two.idx")
    array([5, 9], dtype=uint8)
    """
    magic = bytes([0, 0, IDX_UNSIGNED_BYTE, num_dimensions])
    header = len(magic) + 4 * num_dimensions
    if content[: len(magic)] != magic:
        raise InvalidFile(
            f"{name} starts with the bytes [{content[: len(magic)].hex(' ')}], but an idx file of unsigned bytes in "
            f"{num_dimensions} dimension(s) starts with [{magic.hex(' ')}]; replace it with the original file."
        )
    if len(content) < header:
        raise InvalidFile(
            f"{name} has {len(content)} bytes, but its idx header alone has {header}; replace it with a complete copy."
        )
    shape = tuple(int(size) for size in np.frombuffer(content[len(magic) : header], dtype=">u4"))
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise InvalidFile(
            f"{name} has {len(content)} bytes, but its header announces {expected}; replace it with a complete copy."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def check_labels(labels: NDArray[np.uint8], *, limit: int, name: str) -> None:
    """Refuse class numbers at or above ``limit``: the file is of another dataset or damaged."""
    if labels.size and int(labels.max()) >= limit:
        raise InvalidFile(
            f"{name} holds the label {int(labels.max())}, but its classes are numbered 0 to {limit - 1}; "
            "check that it belongs to this dataset."
        )


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
