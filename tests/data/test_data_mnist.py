from __future__ import annotations

import gzip
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.data import Mnist
from leakgauge.data.files import read
from leakgauge.errors import InvalidFile

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
LABELS = np.array([7, 0, 9], np.uint8)


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write(folder: Path, split: str, images: np.ndarray = IMAGES, labels: np.ndarray = LABELS, gz: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for content, values in (("images-idx3", images), ("labels-idx1", labels)):
        path = folder / f"{split}-{content}-ubyte{'.gz' if gz else ''}"
        path.write_bytes(gzip.compress(idx(values)) if gz else idx(values))


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("folder", [".", "MNIST/raw", "mnist"])
def test_mnist_survives_the_round_trip_from_every_folder_plain_or_gzipped(
    tmp_path: Path, folder: str, gz: bool
) -> None:
    write(tmp_path / folder, "t10k", gz=gz)
    write(tmp_path / folder, "train", IMAGES[:2], LABELS[:2], gz=gz)
    dataset = Mnist()(tmp_path)
    assert dataset.space.shape == (1, 28, 28)
    assert dataset.test.labels.tolist() == [7, 0, 9]
    assert dataset.train.labels.tolist() == [7, 0]
    assert torch.equal((dataset.test.inputs * 255).round().byte()[:, 0], torch.from_numpy(IMAGES))


def test_without_training_files_the_train_split_is_empty(tmp_path: Path) -> None:
    write(tmp_path, "t10k")
    assert Mnist()(tmp_path).train.inputs.shape == (0, 1, 28, 28)


@pytest.mark.parametrize("missing", ["train-labels-idx1-ubyte", "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
def test_half_a_pair_is_refused_by_the_name_of_the_missing_half(tmp_path: Path, missing: str) -> None:
    write(tmp_path, "t10k")
    write(tmp_path, "train")
    (tmp_path / missing).unlink()
    with pytest.raises(InvalidFile, match=rf"^Cannot find {missing} or {missing}.gz in "):
        Mnist()(tmp_path)


def test_unequal_numbers_of_images_and_labels_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "t10k", labels=LABELS[:2])
    with pytest.raises(InvalidFile, match=r"has 3 images but .* has 2 labels; restore the original pair"):
        Mnist()(tmp_path)


def test_a_label_above_nine_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "t10k", labels=np.array([1, 2, 10], np.uint8))
    with pytest.raises(InvalidFile, match=r"t10k-labels-idx1-ubyte holds the label 10"):
        Mnist()(tmp_path)


def test_a_truncated_file_is_refused_with_both_sizes(tmp_path: Path) -> None:
    write(tmp_path, "t10k")
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(
        InvalidFile, match=r"images-idx3-ubyte has 1000 bytes, but its header announces 2368; replace it"
    ):
        Mnist()(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mnist")


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_every_truncation_of_a_gzipped_file_is_refused(folder: Path, data: st.DataObject) -> None:
    write(folder, "t10k", gz=True)
    path = folder / "t10k-images-idx3-ubyte.gz"
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(InvalidFile, match=r"t10k-images-idx3-ubyte.gz"):
        Mnist()(folder)


@settings(deadline=None, max_examples=100)
@given(position=st.integers(0, 2**20), value=st.integers(1, 255))
def test_a_gzipped_file_with_a_wrong_byte_reads_or_is_refused_and_nothing_else(
    folder: Path, position: int, value: int
) -> None:
    content = bytearray(gzip.compress(idx(LABELS)))
    content[position % len(content)] ^= value
    path = folder / "damaged.gz"
    path.write_bytes(content)
    with suppress(InvalidFile):
        read(path)


def test_a_file_that_cannot_be_opened_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"^Cannot read .*gone .*; replace it with a complete copy.$"):
        read(tmp_path / "gone")
