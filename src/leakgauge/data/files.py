"""Finding and reading the files of a data source, with errors a user can act on, and from bytes to pixels in [0, 1]."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import check_unpacked

MOST_TEXT = 256 << 20
"""Bytes of a text file, which takes a multiple of it in memory."""

_CHUNK = 1 << 20


def require_root(root: Path | None, *, source: object, needs: str) -> Path:
    """The data folder, or the sentence that says what ``source`` misses without it."""
    name = type(source).__name__
    if root is None:
        raise InvalidCase(f"{name} needs {needs}; pass --data-root with the folder that holds it.")
    if not root.is_dir():
        raise InvalidCase(f"{name} needs {needs}, but {root} is not a folder; pass --data-root with the right one.")
    return root


def find(names: Iterable[str], *, folders: Iterable[Path]) -> Path | None:
    """The first existing file with one of these names, folder by folder."""
    candidates = (folder / name for folder in folders for name in names)
    return next((path for path in candidates if path.is_file()), None)


def find_required(names: tuple[str, ...], *, folders: tuple[Path, ...]) -> Path:
    """As ``find``, but a missing file is an error that lists where it was looked for."""
    path = find(names, folders=folders)
    if path is None:
        raise InvalidFile(
            f"Cannot find {' or '.join(names)} in {', '.join(map(str, folders))}; put it there or correct --data-root."
        )
    return path


def read(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in ``.gz``."""
    try:
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path) as stream:
            parts: list[bytes] = []
            while part := stream.read(_CHUNK):
                parts.append(part)
                check_unpacked(path, len(parts) * _CHUNK)
            return b"".join(parts)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidFile(f"Cannot read {path} ({error}); replace it with a complete copy.") from error


def read_text(path: Path) -> str:
    """A text file; one that is no text is a ``ValueError``, one that is too large or cannot be read a sentence."""
    try:
        if path.stat().st_size > MOST_TEXT:
            raise InvalidFile(f"{path} has more than {MOST_TEXT >> 20} MB of text; give a part of it.")
        return path.read_text("utf-8-sig")  # spreadsheets put a mark in front
    except OSError as error:
        raise InvalidFile(f"Cannot read {path} ({error.strerror or error}); check the file.") from error


def resize(image: Image.Image, *, height: int, width: int) -> Image.Image:
    """The whole image at another size: area-averaged along an axis that shrinks, bilinear along one that grows."""
    image = image.resize((min(width, image.width), min(height, image.height)), Image.Resampling.BOX)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def to_bytes(image: Image.Image) -> NDArray[np.uint8]:
    """The bytes of an 8-bit greyscale or RGB image, ``c h w``."""
    values = np.asarray(image)
    return values.reshape(*values.shape[:2], -1).transpose(2, 0, 1)


def from_bytes(values: NDArray[np.uint8]) -> Tensor:
    """Bytes 0 to 255 as float32 pixels 0 to 1, in the same shape."""
    # In numpy, because torch spreads many small conversions over threads and waits for them on a busy machine.
    return torch.from_numpy(np.divide(values, 255, dtype=np.float32, order="C"))


def from_labels(values: NDArray[Any]) -> Tensor:
    """Class numbers as int64."""
    return torch.from_numpy(values.astype(np.int64))
