from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.data import Npz
from leakgauge.errors import InvalidCase, InvalidFile

GREY = np.random.default_rng(0).integers(0, 256, (10, 6, 5), np.uint8)
COLOUR = np.random.default_rng(0).integers(0, 256, (10, 3, 6, 5), np.uint8)
CLASSES = np.array([0, 1] * 5)


def save(root: Path, **arrays: Any) -> Path:
    np.savez(root / "data.npz", **arrays)
    return root


def bytes_of(images: torch.Tensor) -> np.ndarray:
    return (images * 255).round().byte().numpy()


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (GREY, GREY[:, None]),
        (GREY[:, None], GREY[:, None]),
        (GREY[..., None], GREY[:, None]),
        (COLOUR, COLOUR),
        (COLOUR.transpose(0, 2, 3, 1), COLOUR),
        (COLOUR / 255, COLOUR),
        ((COLOUR / 255).astype(np.float32), COLOUR),
    ],
    ids=["n h w", "n 1 h w", "n h w 1", "n 3 h w", "n h w 3", "float64", "float32"],
)
def test_every_layout_and_type_gives_the_same_pixels(tmp_path: Path, images: np.ndarray, expected: np.ndarray) -> None:
    dataset = Npz("data.npz")(save(tmp_path, images=images))
    assert dataset.name == "data"
    # One class: images 0 and 5 are the first and the fifth after it.
    assert np.array_equal(bytes_of(dataset.test.inputs), expected[[0, 5]])
    assert np.array_equal(bytes_of(dataset.train.inputs), np.delete(expected, [0, 5], axis=0))
    assert dataset.class_names == ("0",)


def test_labels_are_class_numbers_as_they_are(tmp_path: Path) -> None:
    dataset = Npz("data.npz")(save(tmp_path, images=GREY, labels=CLASSES * 3))
    assert dataset.class_names == ("0", "1", "2", "3")
    assert dataset.test.labels.tolist() == [0, 3]
    assert dataset.train.labels.tolist() == [0, 3] * 4


@pytest.mark.parametrize("subject", [CLASSES * 90 + 10, np.where(CLASSES, "eve", "ann")])
def test_subjects_are_numbered_in_sorted_order(tmp_path: Path, subject: np.ndarray) -> None:
    dataset = Npz("data.npz")(save(tmp_path, images=GREY, subject=subject))
    assert dataset.class_names == tuple(map(str, sorted(set(subject.tolist()))))
    assert dataset.test.labels.tolist() == [0, 1]


def test_test_arrays_are_the_test_split(tmp_path: Path) -> None:
    root = save(tmp_path, images=GREY, labels=CLASSES, test_images=GREY[:3], test_labels=[2, 0, 1])
    dataset = Npz("data.npz")(root)
    assert np.array_equal(bytes_of(dataset.train.inputs), GREY[:, None])
    assert np.array_equal(bytes_of(dataset.test.inputs), GREY[:3, None])
    assert dataset.test.labels.tolist() == [2, 0, 1]
    assert dataset.num_classes == 3


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_images_of_few_channels_are_read_whichever_axis_these_are_on(tmp_path: Path, channels: int) -> None:
    images = np.repeat(COLOUR, 2, axis=1)[:, :channels]
    for saved in (images, images.transpose(0, 2, 3, 1)):
        dataset = Npz("data.npz")(save(tmp_path, images=saved))
        every = torch.cat((dataset.train.inputs, dataset.test.inputs))
        assert sorted(map(bytes, bytes_of(every))) == sorted(map(bytes, images))


def test_test_arrays_need_no_labels_if_none_are_given(tmp_path: Path) -> None:
    dataset = Npz("data.npz")(save(tmp_path, images=GREY, test_images=GREY[:3]))
    assert dataset.test.labels.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"labels": CLASSES}, "has no array 'images'; save the images under that name"),
        ({"images": GREY[0]}, r"has the shape \(6, 5\); save it as n h w, n h w c or n c h w"),
        ({"images": GREY[:0]}, r"has the shape \(0, 6, 5\); .* with at least one image"),
        ({"images": np.repeat(COLOUR, 2, axis=1)[:, :, :, :5]}, "with 1 to 4 channels"),
        ({"images": GREY.astype(np.int32)}, "of type int32, holds neither bytes nor floats in .*; save it as uint8"),
        ({"images": GREY / 100}, "of type float64, holds neither"),
        ({"images": GREY / -255.0}, "holds neither"),
        ({"images": np.full((2, 3, 3), np.nan)}, "holds neither"),
        ({"images": GREY.astype(complex)}, "of type complex128, holds neither"),
        ({"images": GREY, "labels": CLASSES[:9]}, r"'labels' .* shape \(9,\) for 10 images; save one entry per image"),
        (
            {"images": GREY, "labels": CLASSES - 1},
            "must hold class numbers from 0 to 99999; save other identities under",
        ),
        ({"images": GREY, "labels": CLASSES * 10**12}, "must hold class numbers"),
        ({"images": GREY, "labels": CLASSES / 2}, "must hold class numbers"),
        ({"images": GREY, "labels": CLASSES, "test_images": GREY}, "has 'labels' but no 'test_labels'; save one for"),
    ],
)
def test_arrays_that_make_no_sense_are_refused_by_name(tmp_path: Path, arrays: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidFile, match=sentence):
        Npz("data.npz")(save(tmp_path, **arrays))


def test_test_images_of_another_shape_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCase, match=r"bring them to one shape"):
        Npz("data.npz")(save(tmp_path, images=GREY, test_images=COLOUR))


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("key", ["images", "labels", "subject"])
def test_an_object_array_is_refused_and_never_unpickled(tmp_path: Path, key: str) -> None:
    marker = tmp_path / "executed"
    arrays: dict[str, Any] = {"images": GREY, key: np.array([Malicious(marker)] * 10, dtype=object)}
    with pytest.raises(InvalidFile, match=r"data.npz is damaged, .* never unpickled; save it anew with numpy.savez"):
        Npz("data.npz")(save(tmp_path, **arrays))
    assert not marker.exists()


def test_a_bare_pickle_is_refused_and_never_unpickled(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    np.array([Malicious(marker)], dtype=object).dump(tmp_path / "data.npz")
    with pytest.raises(InvalidFile, match=r"never unpickled"):
        Npz("data.npz")(tmp_path)
    assert not marker.exists()


def test_an_object_array_under_another_name_is_not_even_read(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    save(tmp_path, images=GREY, extra=np.array([Malicious(marker)], dtype=object))
    assert len(Npz("data.npz")(tmp_path).test) == 2
    assert not marker.exists()


def test_a_single_array_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "data.npz").open("wb") as file:
        np.save(file, GREY)
    with pytest.raises(InvalidFile, match=r"data.npz is a single array, not an .npz archive; save it with numpy.savez"):
        Npz("data.npz")(tmp_path)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"^Cannot find data.npz in .*; put it there or correct --data-root.$"):
        Npz("data.npz")(tmp_path)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("arrays")


def archive(compressed: bool) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, images=GREY, labels=CLASSES)
    return buffer.getvalue()


@settings(deadline=None, max_examples=60)
@given(compressed=st.booleans(), data=st.data())
def test_every_truncation_of_an_archive_is_refused(root: Path, compressed: bool, data: st.DataObject) -> None:
    content = archive(compressed)
    kept = data.draw(st.integers(0, len(content) - 1))
    (root / "data.npz").write_bytes(content[:kept])
    with pytest.raises(InvalidFile, match=r"data.npz is damaged"):
        Npz("data.npz")(root)


@settings(deadline=None, max_examples=100)
@given(compressed=st.booleans(), position=st.integers(0, 2**20), value=st.integers(1, 255))
def test_an_archive_with_a_wrong_byte_reads_or_is_refused_and_nothing_else(
    root: Path, compressed: bool, position: int, value: int
) -> None:
    content = bytearray(archive(compressed))
    content[position % len(content)] ^= value
    (root / "data.npz").write_bytes(content)
    with suppress(InvalidFile):
        Npz("data.npz")(root)
