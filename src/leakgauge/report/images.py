"""Recovered images as files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor
from torch.nn.functional import pad

from leakgauge.files import atomic_path

MOST = 10
"""Pairs in a line of a sheet."""

_GAP = 2
_LABELS = "strips"
"""The text of a sheet that has the label and the height of each of its strips."""


def to_picture(image: Tensor) -> Image.Image:
    """Pixels c h w in [0, 1] as bytes; more or fewer channels than a picture has are shown as their mean."""
    channels = image if image.shape[0] in (1, 3) else image.mean(dim=0, keepdim=True)
    values = (channels.detach().cpu().double().clamp(0, 1) * 255).round().to(torch.uint8)
    return Image.fromarray(values[0].numpy() if len(values) == 1 else values.permute(1, 2, 0).contiguous().numpy())


def write_images(images: Tensor | None, folder: Path) -> list[Path]:
    """Write each image n c h w as ``image_000.png`` in its own resolution; those of an earlier run are removed."""
    for old in folder.glob("image_[0-9][0-9][0-9].png"):
        old.unlink()
    paths = []
    for number, image in enumerate(() if images is None else images):
        path = folder / f"image_{number:03d}.png"
        with atomic_path(path) as temporary:
            to_picture(image).save(temporary, "PNG")
        paths.append(path)
    return paths


def strip(*lines: Iterable[Tensor]) -> Tensor:
    """Lines of images c h w, one below the other, in colour."""
    rows = [torch.cat([pad(image, (0, 1), value=1.0) for image in line], 2) for line in lines]
    drawn = torch.cat(rows, 1)
    return drawn if len(drawn) == 3 else drawn[:1].expand(3, -1, -1)


def write_strips(strips: Sequence[Tensor], path: Path, labels: Sequence[str] = ()) -> Path | None:
    """One below the other, as a PNG in which `read_strips` finds those with labels; None if there is none."""
    if not strips:
        return None
    width = max(one.shape[2] for one in strips)
    sheet = torch.cat([pad(one, (0, width - one.shape[2], 0, _GAP), value=1.0) for one in strips], 1)
    info = PngInfo()
    info.add_text(_LABELS, json.dumps([[label, one.shape[1]] for label, one in zip(labels, strips)]))
    with atomic_path(path) as temporary:
        to_picture(sheet).save(temporary, "PNG", pnginfo=info if labels else None)
    return path


def read_strips(path: Path) -> dict[str, Tensor]:
    """The strips of a sheet by their labels; none where it is missing, damaged or without labels."""
    try:
        with Image.open(path) as picture:
            labelled = json.loads(picture.info[_LABELS])
            sheet = torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1) / 255
        ends = np.cumsum([height + _GAP for _, height in labelled])
        return {label: sheet[:, end - _GAP - height : end - _GAP] for (label, height), end in zip(labelled, ends)}
    except (OSError, SyntaxError, ValueError, TypeError, KeyError):  # Pillow calls a broken chunk a SyntaxError
        return {}
