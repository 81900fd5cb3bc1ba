"""The public set: rich crops kept, flat ones left out, and the file never half written."""

from __future__ import annotations

import sys

import pytest
import torch
from skimage import data as photographs

from leakgauge.encodings import SeededKeys
from leakgauge.encodings.public_patches import Patches, cached_patches, read_public
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import write_tensors
from leakgauge.progress import Tick
from leakgauge.randomness import seeded

cv2 = pytest.importorskip("cv2")


@pytest.fixture(scope="module")
def photograph() -> torch.Tensor:
    return torch.from_numpy(photographs.astronaut()).permute(2, 0, 1).float() / 255


def keys(seed: int = 0) -> SeededKeys:
    return SeededKeys(seeded(seed, "patches"))


def test_patches_are_crops_of_the_images_with_more_key_points_than_asked(photograph):
    found = Patches(size=64, crop=64, key_points=40)([photograph], 6, keys=keys())
    assert found.shape == (6, 3, 64, 64)
    assert found.dtype == torch.uint8
    windows = (photograph * 255).round().to(torch.uint8).unfold(1, 64, 1).unfold(2, 64, 1)
    for patch in found:
        grey = (patch.float().mean(dim=0)).round().to(torch.uint8).numpy()
        assert len(cv2.SIFT_create().detect(grey, None)) > 40
        corner = (windows[0, :, :, :8, :8] == patch[0, :8, :8]).flatten(2).all(dim=2)
        assert any(torch.equal(windows[:, top, left], patch) for top, left in corner.nonzero().tolist())


def test_a_shrunk_patch_is_the_average_of_its_crop(photograph):
    large = Patches(size=64, crop=64)([photograph], 2, keys=keys())
    small = Patches(size=32, crop=64)([photograph], 2, keys=keys())
    average = large.float().unfold(2, 2, 2).unfold(3, 2, 2).mean(dim=(-2, -1))
    assert float((small.float() - average).abs().max()) <= 0.51


def test_flat_images_and_small_ones_give_no_patch(photograph):
    with pytest.raises(InvalidCase, match=r"Of 500 crops of 96 pixels 0 had more than 40 .* fewer key points"):
        Patches()([torch.full((3, 100, 100), 0.5)], 1, keys=keys())
    with pytest.raises(InvalidCase, match="0 had more than 0"):
        Patches(key_points=0)([photograph[:, :95, :95]], 1, keys=keys())
    flat_and_rich = [torch.full((3, 99, 99), 0.5), photograph]
    found = Patches()(flat_and_rich, 3, keys=keys())
    assert (found.float().flatten(1).std(dim=1) > 1).all()


def test_progress_counts_the_patches_kept(photograph):
    seen: list[Tick] = []
    Patches()([photograph], 3, keys=keys(), progress=seen.append)
    assert [tick[:2] for tick in seen] == [(1, 1 / 3), (2, 2 / 3), (3, 1.0)]


def test_patches_are_cut_once_and_then_read(photograph, tmp_path, monkeypatch):
    file = tmp_path / "public.safetensors"
    first = cached_patches(file, Patches(), [photograph], 3, source="astronaut", keys=keys())
    assert first.shape == (3, 3, 32, 32)
    assert 0 <= float(first.min()) < float(first.max()) <= 1
    monkeypatch.setattr(Patches, "__call__", lambda *_, **__: pytest.fail("cut again"))
    again = cached_patches(file, Patches(), [photograph], 3, source="astronaut", keys=keys(1))
    assert torch.equal(first, again)
    assert torch.equal(read_public(file), first)
    with pytest.raises(
        InvalidFile, match=r"holds other patches \(3 of astronaut, .* choose another file, or remove it"
    ):
        cached_patches(file, Patches(), [photograph], 4, source="astronaut", keys=keys())
    with pytest.raises(InvalidFile, match="holds other patches"):
        cached_patches(file, Patches(key_points=10), [photograph], 3, source="astronaut", keys=keys())


def test_an_interrupted_run_leaves_no_file(photograph, tmp_path):
    def stop(tick: Tick) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "public.safetensors"
    with pytest.raises(KeyboardInterrupt):
        cached_patches(file, Patches(), [photograph], 3, source="astronaut", keys=keys(), progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_withoutopencv_the_extra_is_named(photograph, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(InvalidCase, match=r"pip install 'leakgauge\[instahide\]'"):
        Patches()([photograph], 1, keys=keys())


def test_what_makes_no_sense_is_refused(photograph, tmp_path):
    with pytest.raises(InvalidCase, match="would enlarge its crops"):
        Patches(size=65, crop=64)
    with pytest.raises(InvalidCase, match="must not be negative"):
        Patches(key_points=-1)
    with pytest.raises(InvalidCase, match="Cannot cut 0 patches"):
        Patches()([photograph], 0, keys=keys())
    with pytest.raises(InvalidCase, match="from 0 images"):
        Patches()([], 1, keys=keys())
    write_tensors(tmp_path / "other.safetensors", {"x": torch.zeros(3)})
    with pytest.raises(InvalidFile, match="no tensor 'images'"):
        read_public(tmp_path / "other.safetensors")
