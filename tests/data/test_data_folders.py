from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from leakgauge.data import ImageFolder, PictureFolder
from leakgauge.errors import InvalidCase, InvalidFile


def picture(width: int = 6, height: int = 4, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def save(path: Path, image: Image.Image | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image or picture()).save(path)


@pytest.mark.parametrize("suffix", ["jpg", "JPEG", "png", "Bmp", "webp"])
def test_every_format_is_read_whatever_the_case_of_its_suffix(tmp_path: Path, suffix: str) -> None:
    save(tmp_path / "pets" / f"rex.{suffix}")
    dataset = ImageFolder("pets", size=8)(tmp_path)
    assert dataset.name == "pets"
    assert dataset.class_names == (f"rex.{suffix}",)
    assert dataset.space.shape == (3, 8, 8)


def test_subfolders_are_classes_and_a_fifth_of_each_is_test(tmp_path: Path) -> None:
    for name, count in (("cat", 6), ("dog", 1), ("ant", 5)):
        for number in range(count):
            save(tmp_path / "pets" / name / f"{number}.png")
    (tmp_path / "pets" / "empty").mkdir()
    (tmp_path / "pets" / "readme.txt").write_text("not an image")
    dataset = ImageFolder("pets")(tmp_path)
    assert dataset.class_names == ("ant", "cat", "dog")
    assert dataset.test.labels.tolist() == [0, 1, 1, 2]
    assert dataset.train.labels.tolist() == [0] * 4 + [1] * 4


def test_a_flat_folder_is_one_class_per_file_and_all_test(tmp_path: Path) -> None:
    for name in ("b.png", "a.jpg", "C.png", ".hidden.png"):
        save(tmp_path / "flat" / name)
    dataset = ImageFolder("flat")(tmp_path)
    assert dataset.class_names == ("C.png", "a.jpg", "b.png")
    assert dataset.test.labels.tolist() == [0, 1, 2]
    assert dataset.train.inputs.shape == (0, 3, 32, 32)


def test_the_centre_square_is_kept_and_its_blocks_are_averaged(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 14, 3), np.uint8)
    save(tmp_path / "f" / "wide.png", Image.fromarray(pixels))
    image = ImageFolder("f", size=4)(tmp_path).test.inputs[0].permute(1, 2, 0).numpy() * 255
    expected = pixels[:, 3:11].reshape(4, 2, 4, 2, 3).mean(axis=(1, 3))
    assert np.abs(image - expected).max() <= 1


def test_greyscale_has_one_channel_of_luma(tmp_path: Path) -> None:
    save(tmp_path / "f" / "red.png", Image.new("RGB", (5, 5), (255, 0, 0)))
    images = ImageFolder("f", size=5, greyscale=True)(tmp_path).test.inputs
    assert images.shape == (1, 1, 5, 5)
    assert torch.allclose(images, torch.tensor(76 / 255))


def test_a_photograph_taken_sideways_is_turned_upright(tmp_path: Path) -> None:
    upright = Image.new("RGB", (4, 4), "black")
    upright.paste((255, 255, 255), (0, 0, 4, 2))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera's top is the picture's right
    (tmp_path / "f").mkdir()
    upright.rotate(90).save(tmp_path / "f" / "phone.png", exif=exif)
    image = ImageFolder("f", size=4)(tmp_path).test.inputs[0]
    assert image[:, :2].min() == 1
    assert image[:, 2:].max() == 0


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_every_eight_bit_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    suffix = "jpg" if mode == "CMYK" else "png"
    save(tmp_path / "f" / f"a.{suffix}", picture().convert(mode))
    assert ImageFolder("f", size=4)(tmp_path).space.shape == (3, 4, 4)


def test_sixteen_bit_pixels_are_refused_rather_than_clipped(tmp_path: Path) -> None:
    save(tmp_path / "f" / "scan.png", Image.fromarray(np.full((4, 4), 40_000, np.uint16)))
    with pytest.raises(
        InvalidFile, match=r"scan.png has pixels of mode I;16, not of 8 bits; convert it to 8-bit colour"
    ):
        ImageFolder("f")(tmp_path)


def test_a_file_that_is_no_image_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "note.png").write_text("hello")
    with pytest.raises(InvalidFile, match=r"note.png is not an image that Pillow can read; replace it or remove it"):
        ImageFolder("f")(tmp_path)


def encoded(suffix: str) -> bytes:
    buffer = io.BytesIO()
    picture(40, 40).save(buffer, suffix)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    (root / "f").mkdir()
    return root


@settings(deadline=None, max_examples=60)
@given(suffix=st.sampled_from(["jpeg", "png", "bmp", "webp"]), share=st.floats(0, 0.95))
def test_every_deep_truncation_of_an_image_is_refused(root: Path, suffix: str, share: float) -> None:
    content = encoded(suffix)
    path = root / "f" / "cut.png"
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InvalidFile, match=r"cut.png is .*; replace it or remove it"):
        ImageFolder("f")(root)


@settings(deadline=None, max_examples=100)
@given(
    suffix=st.sampled_from(["jpeg", "png", "bmp", "webp"]),
    flips=st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), min_size=1, max_size=8),
)
def test_an_image_with_wrong_bytes_reads_or_is_refused_and_nothing_else(
    root: Path, suffix: str, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(encoded(suffix))
    for position, value in flips:
        # The header is where parsers trip; half of the flips go there.
        content[position % (len(content) if position % 2 else 80)] ^= value
    (root / "f" / "cut.png").write_bytes(content)
    try:
        dataset = ImageFolder("f")(root)
    except InvalidFile:
        return
    assert dataset.space.shape == (3, 32, 32)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("limit", [30, 10])
def test_an_image_too_large_to_unpack_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    # Pillow warns above the limit and fails above twice the limit; the picture has 40 pixels.
    save(tmp_path / "f" / "bomb.png", picture(10, 4))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(InvalidFile, match=r"bomb.png is too large to unpack safely .*; shrink it or remove it"):
        ImageFolder("f")(tmp_path)


def test_a_missing_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"^Cannot list the folder .*nowhere .*; name an existing folder.$"):
        ImageFolder("nowhere")(tmp_path)


def test_a_folder_without_images_is_refused_with_the_suffixes(tmp_path: Path) -> None:
    (tmp_path / "f" / "sub").mkdir(parents=True)
    with pytest.raises(InvalidFile, match=r"f holds no images; add files ending in .jpg, .jpeg, .png, .bmp, .webp, or"):
        ImageFolder("f")(tmp_path)


def test_subfolders_beside_loose_images_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "f" / "loose.png")
    save(tmp_path / "f" / "cat" / "1.png")
    with pytest.raises(
        InvalidFile, match=r"both class subfolders and loose images such as loose.png; keep one of the two"
    ):
        ImageFolder("f")(tmp_path)


def test_a_size_below_one_is_refused() -> None:
    with pytest.raises(InvalidCase, match=r"cannot be 0 pixels wide; pass a `size` of at least 1"):
        ImageFolder("f", size=0)


def test_pictures_are_whole_and_from_every_depth_in_order_of_path(tmp_path: Path) -> None:
    save(tmp_path / "b.png", picture(7, 5, seed=1))
    save(tmp_path / "a" / "deep" / "c.png", picture(3, 4, seed=2))
    (tmp_path / "readme.txt").write_text("not an image")
    found = PictureFolder(tmp_path)
    assert [tuple(image.shape) for image in found] == [(3, 4, 3), (3, 5, 7)]
    assert torch.equal(
        (found[1] * 255).round().byte(), torch.from_numpy(np.array(picture(7, 5, seed=1))).permute(2, 0, 1)
    )
    assert len(found[:1]) == 1
    assert PictureFolder(tmp_path, greyscale=True)[0].shape == (1, 4, 3)
    (tmp_path / "b.png").write_bytes(b"no picture")
    with pytest.raises(InvalidFile, match=r"b\.png is not an image"):
        PictureFolder(tmp_path)[1]
