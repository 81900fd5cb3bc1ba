"""Recovered images as files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from leakgauge.files import atomic_path

MOST = 10
"""Pairs in a line of a sheet."""

_GAP = 2


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


def write_strips(strips: Sequence[Tensor], path: Path) -> Path | None:
    """One below the other, as a PNG; None if there is none."""
    if not strips:
        return None
    width = max(one.shape[2] for one in strips)
    sheet = torch.cat([pad(one, (0, width - one.shape[2], 0, _GAP), value=1.0) for one in strips], 1)
    with atomic_path(path) as temporary:
        to_picture(sheet).save(temporary, "PNG")
    return path
