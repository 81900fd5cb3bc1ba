"""From Pillow images and byte arrays to pixels in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor


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
