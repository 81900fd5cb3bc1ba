from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from cli_support import *  # noqa: F403
from PIL import Image

from leakgauge.report.images import write_images


@pytest.mark.parametrize(("channels", "shape"), [(1, (4, 6)), (3, (4, 6, 3)), (2, (4, 6)), (5, (4, 6))])
def test_each_image_is_a_file_in_its_own_resolution(channels: int, shape: tuple[int, ...]) -> None:
    images = torch.rand(3, channels, 4, 6, generator=torch.Generator().manual_seed(0))
    paths = write_images(images, Path())
    assert [path.name for path in paths] == ["image_000.png", "image_001.png", "image_002.png"]
    assert sorted(Path().iterdir()) == paths
    with Image.open(paths[1]) as picture:
        pixels = np.asarray(picture)
    assert pixels.shape == shape
    expected = images[1] if channels in (1, 3) else images[1].mean(dim=0, keepdim=True)
    expected = (expected * 255).round().byte().permute(1, 2, 0).numpy().reshape(shape)
    assert np.array_equal(pixels, expected)


def test_pixels_beyond_the_range_are_cut_off(tmp_path: Path) -> None:
    (path,) = write_images(torch.tensor([-3.0, 0.5, 7.0]).view(1, 1, 1, 3), tmp_path)
    with Image.open(path) as picture:
        assert np.asarray(picture).tolist() == [[0, 128, 255]]


def test_nothing_recovered_writes_nothing() -> None:
    assert write_images(None, Path()) == []
    assert write_images(torch.empty(0, 1, 4, 4), Path()) == []
    assert list(Path().iterdir()) == []
