"""Images saved as numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.data.datasets import Dataset, split_every_fifth
from leakgauge.data.files import find_required, from_bytes, from_labels, require_root
from leakgauge.errors import InvalidFile
from leakgauge.files import read_arrays, read_tensors
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch

CHANNELS = (1, 2, 3, 4)

MAX_CLASSES = 100_000

KEYS = ("images", "rows", "labels", "subject", "test_images", "test_labels", "test_subject")

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Npz:
    """An ``.npz`` file below the data root with an array ``images`` and, optionally, ``labels`` or ``subject``.

    ``images`` are n h w, n h w c or n c h w (channels first where both readings fit), bytes or floats in [0, 1].
    ``labels`` are class numbers, ``subject`` any identities (numbered in sorted order); without either there is one
    class. ``test_images``, with ``test_labels`` or ``test_subject``, are the test split; without them, the first image
    of each class and every fifth after it are.
    """

    file: str

    def __call__(self, root: Path | None) -> Dataset:
        root = require_root(root or Path(), source=self, needs=f"the file {self.file!r}")
        path = find_required((self.file,), folders=(root,))
        arrays = _load(path)
        prefixes = ("", "test_") if "test_images" in arrays else ("",)
        images = [_images(arrays, f"{prefix}images", path) for prefix in prefixes]
        labels, class_names = _labels(arrays, prefixes, [len(part) for part in images], path)
        parts = [Batch(*part) for part in zip(images, labels, strict=True)]
        train, test = parts if len(parts) == 2 else split_every_fifth(parts[0])
        return Dataset(name=path.stem, train=train, test=test, class_names=class_names)


def read_batch(path: Path, space: InputSpace | None = None) -> Batch:
    """All ``images`` of an .npz, or its ``rows`` where the space has none, with their ``labels``, unsplit."""
    found = read_references(path, space)
    if not isinstance(found, Batch):
        raise InvalidFile(f"{path} has no array 'labels'; save the class number of each example under that name.")
    return found


def read_references(path: Path, space: InputSpace | None = None) -> Batch | Tensor:
    """As `read_batch`, but where there are no labels the inputs alone."""
    arrays = _load(path)
    of_images = space is None or isinstance(space, ImageSpace)
    inputs = _images(arrays, "images", path) if of_images else _rows(arrays, path)
    if "labels" not in arrays:
        return inputs
    labels, _ = _labels(arrays, ("",), [len(inputs)], path)
    return Batch(inputs, labels[0])


def _rows(arrays: Arrays, path: Path) -> Tensor:
    """What the array ``rows`` holds; whether it fits the columns is for their space to say."""
    if "rows" not in arrays or arrays["rows"].ndim != 2 or arrays["rows"].dtype.kind not in "fiu":
        raise InvalidFile(f"{path} has no array 'rows' of numbers n k; save the rows under that name.")
    return torch.from_numpy(arrays["rows"].astype(np.float32))


def read_images(path: Path) -> Tensor:
    """The ``images`` of an .npz or .safetensors file, n c h w in [0, 1], without labels."""
    if path.suffix == ".safetensors":
        arrays: Arrays = {name: tensor.numpy() for name, tensor in read_tensors(path)[0].items() if name == "images"}
        return _images(arrays, "images", path)
    return _images(_load(path), "images", path)


def _load(path: Path) -> Arrays:
    if not path.is_file():
        raise InvalidFile(f"There is no file {path}; check the path.")
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX:
                raise InvalidFile(
                    f"{path} is a single array, not an .npz archive; save it with numpy.savez(file, images=...)."
                )
        return read_arrays(path, KEYS)
    except InvalidFile:
        raise
    except Exception as error:
        # A damaged archive fails in a dozen ways that mean the same to the user.
        raise InvalidFile(
            f"{path} is damaged, is no .npz archive, or holds object arrays, which are never unpickled; "
            "save it anew with numpy.savez and plain arrays."
        ) from error


def _images(arrays: Arrays, key: str, path: Path) -> Tensor:
    """The images under ``key`` as n c h w in [0, 1]."""
    if key not in arrays:
        raise InvalidFile(f"{path} has no array {key!r}; save the images under that name.")
    images = arrays[key]
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[1] not in CHANNELS:
        images = images.transpose(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] not in CHANNELS or not images.size:
        raise InvalidFile(
            f"The array {key!r} in {path} has the shape {arrays[key].shape}; save it as n h w, n h w c or n c h w, "
            "with at least one image and with 1 to 4 channels."
        )
    if images.dtype == np.uint8:
        return from_bytes(images)
    # Written so that NaN fails too.
    if images.dtype.kind != "f" or not (images.min() >= 0 and images.max() <= 1):
        raise InvalidFile(
            f"The array {key!r} in {path}, of type {images.dtype}, holds neither bytes nor floats in [0, 1]; "
            "save it as uint8, or scaled to [0, 1]."
        )
    return torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))


def _labels(
    arrays: Arrays, prefixes: Sequence[str], counts: Sequence[int], path: Path
) -> tuple[list[Tensor], tuple[str, ...]]:
    """The class numbers of each split, and the names of the classes."""
    kind = next((kind for kind in ("labels", "subject") if kind in arrays), None)
    if kind is None:
        return [torch.zeros(count, dtype=torch.int64) for count in counts], ("0",)
    keys = [f"{prefix}{kind}" for prefix in prefixes]
    for key, count in zip(keys, counts, strict=True):
        if key not in arrays:
            raise InvalidFile(f"{path} has {kind!r} but no {key!r}; save one for each split, or for none.")
        if arrays[key].shape != (count,):
            raise InvalidFile(
                f"The array {key!r} in {path} has the shape {arrays[key].shape} for {count} images; "
                "save one entry per image."
            )
    values = np.concatenate([arrays[key] for key in keys])
    if kind == "subject":
        names, numbers = np.unique(values, return_inverse=True)
    elif values.dtype.kind in "iu" and values.min() >= 0 and values.max() < MAX_CLASSES:
        names, numbers = np.arange(int(values.max()) + 1), values
    else:
        raise InvalidFile(
            f"The array 'labels' in {path} must hold class numbers from 0 to {MAX_CLASSES - 1}; "
            "save other identities under the name 'subject'."
        )
    return list(from_labels(numbers).split(list(counts))), tuple(str(name) for name in names)
