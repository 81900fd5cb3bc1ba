"""Colour photographs embedded in scikit-image, cut into crops: real pictures without a download."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import skimage.data
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor

from leakgauge.data.datasets import Dataset
from leakgauge.data.files import from_bytes, resize, to_bytes
from leakgauge.errors import InvalidCase
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch, Shape

STRIDES_PER_SIDE = 4


class Window(NamedTuple):
    """A square of pixels."""

    top: int
    left: int
    side: int


class SplitColumns(NamedTuple):
    """The columns of a photograph that each split may cut from."""

    test: tuple[range, ...]
    train: tuple[range, ...]


def split_columns(width: int) -> SplitColumns:
    """Test has the columns from 25 % to 60 % of the width, train those to the left and to the right.

    >>> split_columns(200)
    SplitColumns(test=(range(50, 120),), train=(range(0, 50), range(120, 200)))
    """
    start, stop = width * 25 // 100, width * 60 // 100
    return SplitColumns(test=(range(start, stop),), train=(range(start), range(stop, width)))


def windows(height: int, columns: range, sides: Sequence[int]) -> Iterator[Window]:
    """The squares of these sides on a regular grid over the columns, none crossing their border.

    >>> list(windows(4, range(10, 15), [4]))
    [Window(top=0, left=10, side=4), Window(top=0, left=11, side=4)]
    """
    for side in sides:
        stride = max(side // STRIDES_PER_SIDE, 1)
        for top in range(0, height - side + 1, stride):
            for left in range(columns.start, columns.stop - side + 1, stride):
                yield Window(top, left, side)


def thin(candidates: Sequence[Window], at_most: int) -> tuple[Window, ...]:
    """At most so many of the windows, evenly spaced in their order."""
    kept = min(len(candidates), at_most)
    return tuple(candidates[index * len(candidates) // kept] for index in range(kept))


HIGHLIGHTS = {
    "astronaut": Window(44, 154, 144),  # her face
    "chelsea": Window(50, 118, 150),  # the cat's right eye
    "coffee": Window(5, 158, 200),  # the cup
    "rocket": Window(112, 267, 107),  # the nose of the rocket
    "hubble_deep_field": Window(20, 300, 218),  # a group of galaxies
    "immunohistochemistry": Window(90, 135, 170),  # the edge of a gland
    "retina": Window(120, 353, 470),  # forking vessels
}
"""The photographs in class order, each with the most telling window of its test columns."""

PHOTOGRAPHS = tuple(HIGHLIGHTS)

STRANGERS = ("camera", "china", "flower")
"""Further photographs, of no class: crowds are cut from them, so that none needs crops of the private one."""

SIZES = range(8, 257)

FRACTIONS_OF_SHORTER_EDGE = (5, 4, 3, 2)
MAX_TEST_CROPS = 64
MAX_TRAIN_CROPS = 112

# In grey levels out of 255, of a thumbnail and around its best plane: neither grain nor dusk pass for content.
MIN_DEVIATION = 2.0
THUMBNAIL = 16


Split = Literal["test", "train"]


class CropWindows(NamedTuple):
    """Where the crops of one photograph lie."""

    test: tuple[Window, ...]
    train: tuple[Window, ...]


@dataclass(frozen=True)
class Photos:
    """Square crops of seven photographs that come with scikit-image; the class is the photograph.

    ====================  =============================  ===============================
    Class                 Shows                          Licence
    ====================  =============================  ===============================
    astronaut             Eileen Collins, by NASA        public domain
    chelsea               a cat, by Stefan van der Walt  CC0
    coffee                a cup, by Rachel Michetti      CC0
    rocket                a Falcon 9, by SpaceX          public domain
    hubble_deep_field     galaxies, by NASA              public domain
    immunohistochemistry  colonic glands, by CMMI        no known copyright restrictions
    retina                a fundus, by Mikael Häggström  CC0
    ====================  =============================  ===============================

    Test crops lie in the columns from 25 % to 60 % of the width, train crops left and right of them, so no pixel is in
    both splits. Strangers are crops of three further photographs: a photographer (CC0, by Lav Varshney, comes with
    scikit-image), a temple and a flower (CC BY 2.0, by danielbuechele and vultilion, come with scikit-learn). Nearly
    uniform crops and plain gradients, such as the evening sky, are left out: they carry nothing to leak. Which windows
    are cut does not depend on ``size``.
    """

    size: int = 32
    greyscale: bool = False

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise InvalidCase(
                f"The embedded photographs give crops of {SIZES.start} to {SIZES.stop - 1} pixels, not {self.size}; "
                "choose a `size` in that range."
            )

    def __call__(self, root: Path | None = None) -> Dataset:
        del root  # embedded
        return _dataset(self.size, self.greyscale)


def reference_inputs(space: InputSpace, count: int, *, generator: torch.Generator) -> Tensor:
    """``count`` unrelated members of a space: crops of photographs for images, for anything else random ones."""
    if isinstance(space, ImageSpace):
        return reference_images(space.shape, count, generator=generator)
    return space.draw(count, generator=generator)


def reference_images(shape: Shape, count: int, *, generator: torch.Generator, split: Split | None = None) -> Tensor:
    """``count`` distinct crops of the embedded photographs, of one split or of both, resized to any shape.

    Three channels are colour; any other number repeats the luma.
    """
    return reference_batch(shape, count, generator=generator, split=split).inputs


def reference_batch(
    shape: Shape,
    count: int,
    *,
    generator: torch.Generator,
    split: Split | None = None,
    names: Sequence[str] = PHOTOGRAPHS,
) -> Batch:
    """`reference_images`, of the photographs of these ``names``, whose numbers are the labels, and where they lie."""
    channels, height, width = shape
    kept = CropWindows._fields if split is None else (split,)
    crops = [(name, window) for name in names for part in kept for window in getattr(crop_windows(name), part)]
    if not 0 <= count <= len(crops):
        raise InvalidCase(
            f"Cannot give {count} reference images, as the embedded photographs have {len(crops)}; "
            "ask for fewer or pass your own."
        )
    chosen = [crops[index] for index in torch.randperm(len(crops), generator=generator)[:count].tolist()]
    images = np.empty((count, channels, height, width), np.uint8)
    for image, crop in zip(images, chosen, strict=True):
        image[:] = _cut(*crop, height=height, width=width, greyscale=channels != 3)
    regions = torch.tensor([_region(*crop) for crop in chosen], dtype=torch.long).view(count, 5)
    return Batch(from_bytes(images), regions[:, 0].clone(), regions=regions)


def count_references(split: Split, names: Sequence[str] = PHOTOGRAPHS) -> int:
    """How many crops a split of these photographs has."""
    return sum(len(getattr(crop_windows(name), split)) for name in names)


@lru_cache
def crop_windows(name: str) -> CropWindows:
    """The windows of one photograph that have content, thinned evenly; its highlight is the first of ``test``."""
    photograph = _photograph(name)
    luma = photograph.convert("L")
    sides = [min(photograph.size) // fraction for fraction in FRACTIONS_OF_SHORTER_EDGE]

    def with_content(columns: Iterable[range]) -> list[Window]:
        grid = (window for band in columns for window in windows(photograph.height, band, sides))
        return [window for window in grid if _has_content(luma, window)]

    columns = split_columns(photograph.width)
    if name in STRANGERS:
        return CropWindows((), thin(with_content([range(photograph.width)]), MAX_TEST_CROPS + MAX_TRAIN_CROPS))
    return CropWindows(
        test=(HIGHLIGHTS[name], *thin(with_content(columns.test), MAX_TEST_CROPS - 1)),
        train=thin(with_content(columns.train), MAX_TRAIN_CROPS),
    )


# Few entries, as one with the largest crops fills a gigabyte.
@lru_cache(maxsize=4)
def _dataset(size: int, greyscale: bool) -> Dataset:
    crops = {name: crop_windows(name) for name in HIGHLIGHTS}

    def batch(split: dict[str, tuple[Window, ...]]) -> Batch:
        images = [
            _cut(name, window, height=size, width=size, greyscale=greyscale) for name in split for window in split[name]
        ]
        regions = torch.tensor([_region(name, window) for name in split for window in split[name]])
        labels = regions[:, 0].where(regions[:, 0] < len(HIGHLIGHTS), torch.tensor(-1))
        return Batch(from_bytes(np.stack(images)), labels, regions=regions)

    return Dataset(
        name="photos",
        train=batch({name: crops[name].train for name in crops}),
        test=batch({name: crops[name].test for name in crops}),
        class_names=tuple(crops),
        highlights=tuple(accumulate([0, *(len(crops[name].test) for name in crops)]))[:-1],
        strangers=batch({name: crop_windows(name).train for name in STRANGERS}),
    )


def _cut(name: str, window: Window, *, height: int, width: int, greyscale: bool) -> NDArray[np.uint8]:
    crop = _crop(_photograph(name), window)
    return to_bytes(resize(crop.convert("L") if greyscale else crop, height=height, width=width))


def _region(name: str, window: Window) -> tuple[int, int, int, int, int]:
    """The number of the photograph, which is its class, and the ends of the window."""
    top, left, side = window
    return (*HIGHLIGHTS, *STRANGERS).index(name), top, left, top + side, left + side


def _crop(photograph: Image.Image, window: Window) -> Image.Image:
    # Not `resize(box=...)`, whose filter can reach pixels just outside the box, and so across the split.
    return photograph.crop((window.left, window.top, window.left + window.side, window.top + window.side))


def _has_content(luma: Image.Image, window: Window) -> bool:
    """Whether a thumbnail of the window varies around the plane that fits it best."""
    grey = np.asarray(resize(_crop(luma, window), height=THUMBNAIL, width=THUMBNAIL), np.float64)
    ramp = np.linspace(-1, 1, THUMBNAIL)
    slopes = np.array([(grey.mean(axis=axis) @ ramp) / (ramp @ ramp) for axis in (0, 1)])
    return bool(grey.var() - (slopes**2).sum() * ramp.var() >= MIN_DEVIATION**2)


@lru_cache
def _photograph(name: str) -> Image.Image:
    if name in ("china", "flower"):
        return Image.fromarray(load_sample_image(f"{name}.jpg"))
    return Image.fromarray(getattr(skimage.data, name)()).convert("RGB")
