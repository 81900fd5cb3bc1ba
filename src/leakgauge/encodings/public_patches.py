"""The public set of cross-dataset InstaHide: random crops of public images, flat ones left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from leakgauge.encodings.keys import KeySource
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import read_tensors, write_tensors
from leakgauge.progress import Progress, Tick, silent

_PATIENCE = 500
"""Crops tried for each patch kept before the images count as too flat."""


@dataclass(frozen=True)
class Patches:
    """Random square crops of side ``crop`` with more than ``key_points`` SIFT key points [Lowe, 1999], at ``size``.

    The rule is that of Huang et al. [2020, section 3.2], with 40 key points. They are counted before the crop is
    shrunk, since hardly any patch of 32 pixels has as many.
    """

    size: int = 32
    crop: int = 96
    key_points: int = 40

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.crop:
            raise InvalidCase(
                f"Patches(size={self.size}, crop={self.crop}) would enlarge its crops; let 1 <= size <= crop."
            )
        if self.key_points < 0:
            raise InvalidCase(f"Patches(key_points=...) must not be negative, got {self.key_points}; 0 asks for one.")

    def __call__(
        self,
        images: Sequence[Tensor],
        count: int,
        *,
        keys: KeySource,
        progress: Progress = silent,
    ) -> Tensor:
        """``count`` patches n c h w, as bytes; ``images`` are c h w in [0, 1] and are fetched as they are drawn."""
        if count < 1 or len(images) == 0:
            raise InvalidCase(f"Cannot cut {count} patches from {len(images)} images; ask for one or more of each.")
        sift = opencv().SIFT_create()
        kept: list[Tensor] = []
        tried = 0
        while len(kept) < count:
            where, top, left = keys.uniform(3).tolist()
            image = images[int(where * len(images))]
            tried += 1
            if min(image.shape[1:]) >= self.crop:
                crop = _crop(image, self.crop, top, left)
                if len(sift.detect(_grey(crop), None)) > self.key_points:
                    kept.append(self._shrunk(crop))
                    progress(Tick(len(kept), len(kept) / count))
            if tried >= _PATIENCE * (len(kept) + 1):
                raise InvalidCase(
                    f"Of {tried} crops of {self.crop} pixels {len(kept)} had more than {self.key_points} key points; "
                    "take larger or richer images, a larger crop, or fewer key points."
                )
        return torch.stack(kept)

    def _shrunk(self, crop: Tensor) -> Tensor:
        if self.crop != self.size:
            crop = interpolate(crop[None], size=(self.size, self.size), mode="area")[0]
        return (crop * 255).round().to(torch.uint8)


def cached_patches(
    file: Path,
    patches: Patches,
    images: Sequence[Tensor],
    count: int,
    *,
    source: str,
    keys: KeySource,
    progress: Progress = silent,
) -> Tensor:
    """The patches kept in ``file``, n c h w in [0, 1], cut from ``source`` and kept there if it is missing."""
    wanted = {"patches": repr(patches), "count": str(count), "source": source}
    if file.exists():
        _, found = read_tensors(file)
        if found != wanted:
            raise InvalidFile(
                f"{file} holds other patches ({found.get('count', 'unknown')} of {found.get('source', 'unknown')}, "
                f"{found.get('patches', 'unknown')}); choose another file, or remove it."
            )
    else:
        write_tensors(file, {"images": patches(images, count, keys=keys, progress=progress)}, wanted)
    return read_public(file)


def read_public(file: Path) -> Tensor:
    """The public images of a .safetensors file, n c h w in [0, 1], saved as bytes or as floats."""
    tensors, _ = read_tensors(file)
    if "images" not in tensors or tensors["images"].ndim != 4:
        raise InvalidFile(f"{file} holds no tensor 'images' n c h w; make it with `leakgauge instahide public`.")
    images = tensors["images"]
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def _crop(image: Tensor, side: int, top: float, left: float) -> Tensor:
    down, right = int(top * (image.shape[1] - side + 1)), int(left * (image.shape[2] - side + 1))
    return image[:, down : down + side, right : right + side]


def _grey(crop: Tensor) -> np.ndarray[Any, Any]:
    return (crop.mean(dim=0) * 255).round().to(torch.uint8).numpy()


def opencv() -> Any:
    """The library that finds key points, or a word about how to have it."""
    try:
        import cv2
    except ImportError as error:
        raise InvalidCase(
            "SIFT key points need OpenCV, which is not installed; run pip install 'leakgauge[instahide]'."
        ) from error
    return cv2
