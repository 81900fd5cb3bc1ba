"""A folder of image files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from leakgauge.data.datasets import Dataset, split_every_fifth
from leakgauge.data.files import from_bytes, require_root, resize, to_bytes
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.types import Batch, Shape

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

FORMATS = ("JPEG", "PNG", "BMP", "WEBP")

EIGHT_BIT_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB")


@dataclass(frozen=True)
class ImageFolder:
    """The images in ``folder`` below the data root, centre-cropped to squares: a class per subfolder, or else per file.

    Of each class, in order of file name, the first image and every fifth after it are test.
    """

    folder: str
    size: int = 32
    greyscale: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidCase(f"Images cannot be {self.size} pixels wide; pass a `size` of at least 1.")

    def __call__(self, root: Path | None) -> Dataset:
        folder = require_root(root or Path(), source=self, needs=f"the image folder {self.folder!r}") / self.folder
        classes = _classes(folder)
        files = [(path, label) for label, paths in enumerate(classes.values()) for path in paths]
        images = np.stack([_read(path, self.size, self.size, self.greyscale) for path, _ in files])
        train, test = split_every_fifth(Batch(from_bytes(images), torch.tensor([label for _, label in files])))
        return Dataset(name=folder.name, train=train, test=test, class_names=tuple(classes))


def _classes(folder: Path) -> dict[str, list[Path]]:
    """The image files of each class, by class name; both in order of name."""
    entries = _entries(folder)
    subfolders = {path.name: _images(_entries(path)) for path in entries if path.is_dir()}
    classes = {name: paths for name, paths in subfolders.items() if paths}
    loose = _images(entries)
    if classes and loose:
        raise InvalidFile(
            f"{folder} holds both class subfolders and loose images such as {loose[0].name}; keep one of the two."
        )
    if not classes and not loose:
        raise _no_images(folder)
    return classes or {path.name: [path] for path in loose}


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise InvalidFile(f"Cannot list the folder {folder} ({error.strerror}); name an existing folder.") from error


def _no_images(folder: Path) -> InvalidFile:
    return InvalidFile(f"{folder} holds no images; add files ending in {', '.join(SUFFIXES)}, or name another folder.")


def _images(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if path.suffix.lower() in SUFFIXES and path.is_file()]


class PictureFolder(Sequence[Tensor]):
    """The image files in a folder and below it, whole: c h w in [0, 1], each read when it is asked for."""

    def __init__(self, folder: Path, *, greyscale: bool = False) -> None:
        self.paths = sorted(_below(folder))
        if not self.paths:
            raise _no_images(folder)
        self.greyscale = greyscale
        # A few, for folders of a few large photographs.
        self._read = lru_cache(maxsize=16)(lambda path: from_bytes(to_bytes(open_upright(path, greyscale))))

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...

    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...

    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        paths = self.paths[index]
        return [self._read(path) for path in paths] if isinstance(paths, list) else self._read(paths)


def _below(folder: Path) -> Iterator[Path]:
    entries = _entries(folder)
    yield from _images(entries)
    for entry in entries:
        if entry.is_dir():
            yield from _below(entry)


def read_pictures(folder: Path, shape: Shape) -> Tensor:
    """The image files in a folder and below it in order of name, centre-cropped and resized to one shape.

    Three channels are colour; any other number repeats the luma.
    """
    channels, height, width = shape
    paths = sorted(_below(folder))
    if not paths:
        raise _no_images(folder)
    images = np.empty((len(paths), *shape), np.uint8)
    for image, path in zip(images, paths, strict=True):
        image[:] = _read(path, height, width, greyscale=channels != 3)
    return from_bytes(images)


def _read(path: Path, height: int, width: int, greyscale: bool) -> NDArray[np.uint8]:
    """The largest part in the middle of an image file that has these proportions, at this size."""
    upright = open_upright(path, greyscale)
    across, down = (
        min(upright.width, upright.height * width // height),
        min(upright.height, upright.width * height // width),
    )
    across, down = max(across, 1), max(down, 1)
    left, top = (upright.width - across) // 2, (upright.height - down) // 2
    return to_bytes(resize(upright.crop((left, top, left + across, top + down)), height=height, width=width))


def open_upright(path: Path, greyscale: bool) -> Image.Image:
    """An image file as the camera was held, in 8 bits; a sentence if it cannot be read or should not be."""
    try:
        with warnings.catch_warnings():
            # Pillow only warns of an image large enough to exhaust memory when unpacked.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            # By these readers alone: others call programs, as that of PostScript does, whatever the name of the file.
            with Image.open(path, formats=FORMATS) as image:
                if image.mode not in EIGHT_BIT_MODES:
                    # Pillow would clip these to 0..255 without a word.
                    raise InvalidFile(
                        f"{path} has pixels of mode {image.mode}, not of 8 bits; convert it to 8-bit colour."
                    )
                return ImageOps.exif_transpose(image).convert("L" if greyscale else "RGB")
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise InvalidFile(f"{path} is too large to unpack safely ({error}); shrink it or remove it.") from error
    except UnidentifiedImageError as error:
        raise InvalidFile(f"{path} is not an image that Pillow can read; replace it or remove it.") from error
    except InvalidFile:
        raise
    except Exception as error:
        # Pillow's decoders raise whatever their parsing runs into, from `OSError` to `struct.error`.
        raise InvalidFile(f"{path} is damaged ({error}); replace it or remove it.") from error
