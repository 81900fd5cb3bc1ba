"""Recovered images as files."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from torch import Tensor

from leakgauge.files import atomic_path


def write_images(images: Tensor | None, folder: Path) -> list[Path]:
    """Write each image n c h w as ``image_000.png`` in its own resolution; those of an earlier run are removed."""
    for old in folder.glob("image_[0-9][0-9][0-9].png"):
        old.unlink()
    paths = []
    for number, image in enumerate(() if images is None else images):
        grey = image if image.shape[0] in (1, 3) else image.mean(dim=0, keepdim=True)
        pixels = (grey.clamp(0, 1) * 255).round().byte().cpu().permute(1, 2, 0).numpy()
        path = folder / f"image_{number:03d}.png"
        with atomic_path(path) as temporary:
            Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(temporary, "PNG")
        paths.append(path)
    return paths
