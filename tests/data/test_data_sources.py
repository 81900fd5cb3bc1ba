"""What holds for every data source, on files written here in the real formats."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from leakgauge.data import Cifar10, Cifar100, DataSource, Digits, ImageFolder, Mnist, Npz, Photos
from leakgauge.errors import InvalidCase

EMBEDDED: tuple[DataSource, ...] = (Photos(size=16), Photos(size=16, greyscale=True), Digits())
ON_DISK: tuple[DataSource, ...] = (
    Cifar10(),
    Cifar100(),
    Cifar100(coarse=True),
    Mnist(),
    ImageFolder("pictures", size=8),
    ImageFolder("pictures", size=9, greyscale=True),
    Npz("arrays/faces.npz"),
)

NAMES = {source.__name__: source for source in (Cifar10, Cifar100, Digits, ImageFolder, Mnist, Npz, Photos)}


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    random = np.random.default_rng(0)
    for folder in ("cifar-10-batches-bin", "cifar-100-binary", "MNIST/raw", "pictures/a", "pictures/b", "arrays"):
        (root / folder).mkdir(parents=True)
    cifar10 = np.hstack([np.arange(10, dtype=np.uint8)[:, None], random.integers(0, 256, (10, 3072), np.uint8)])
    cifar100 = np.hstack([(np.arange(100, dtype=np.uint8) // 5)[:, None], np.arange(100, dtype=np.uint8)[:, None]])
    cifar100 = np.hstack([cifar100, random.integers(0, 256, (100, 3072), np.uint8)])
    for name in ("test_batch", "data_batch_1"):
        (root / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(cifar10.tobytes())
    for name in ("test", "train"):
        (root / "cifar-100-binary" / f"{name}.bin").write_bytes(cifar100.tobytes())
    for split in ("t10k", "train"):
        (root / "MNIST/raw" / f"{split}-labels-idx1-ubyte").write_bytes(idx(np.arange(10, dtype=np.uint8)))
        images = random.integers(0, 256, (10, 28, 28), np.uint8)
        (root / "MNIST/raw" / f"{split}-images-idx3-ubyte").write_bytes(idx(images))
    for number in range(12):
        picture = Image.fromarray(random.integers(0, 256, (10, 11, 3), np.uint8))
        picture.save(root / "pictures" / "ab"[number % 2] / f"{number}.png")
    faces = random.integers(0, 256, (12, 9, 7), np.uint8)
    np.savez(root / "arrays" / "faces.npz", images=faces, subject=np.arange(12) % 3)
    return root


every_source = pytest.mark.parametrize("source", [*EMBEDDED, *ON_DISK], ids=repr)


@every_source
def test_images_are_float32_pixels_and_labels_are_int64_classes(source: DataSource, root: Path) -> None:
    dataset = source(root)
    for batch in (dataset.train, dataset.test):
        assert batch.inputs.dtype == torch.float32
        assert batch.inputs.is_contiguous()
        assert batch.inputs.shape[1:] == dataset.space.shape
        assert 0 <= float(batch.inputs.min()) < float(batch.inputs.max()) <= 1
        assert batch.labels.dtype == torch.int64


@every_source
def test_every_class_is_in_both_splits(source: DataSource, root: Path) -> None:
    dataset = source(root)
    for batch in (dataset.train, dataset.test):
        assert batch.labels.unique().tolist() == list(range(dataset.num_classes))


@every_source
def test_reading_twice_gives_the_same_data(source: DataSource, root: Path) -> None:
    first, second = source(root), source(root)
    assert first.class_names == second.class_names
    for left, right in ((first.train, second.train), (first.test, second.test)):
        assert torch.equal(left.inputs, right.inputs)
        assert torch.equal(left.labels, right.labels)


@every_source
def test_the_repr_of_a_source_evaluates_back_to_it(source: DataSource, root: Path) -> None:
    rebuilt = eval(repr(source), dict(NAMES))  # noqa: S307
    assert rebuilt == source
    assert rebuilt is not source


@every_source
def test_a_source_cannot_be_changed(source: DataSource, root: Path) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        source.size = 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("source", EMBEDDED, ids=repr)
def test_embedded_data_needs_no_root(source: DataSource) -> None:
    assert len(source(None).test) > 100


@pytest.mark.parametrize("source", [one for one in ON_DISK if not isinstance(one, ImageFolder | Npz)], ids=repr)
def test_published_data_without_a_root_are_refused_with_the_option_that_sets_it(source: DataSource) -> None:
    with pytest.raises(InvalidCase, match=r" needs the .*; pass --data-root with the folder that holds it\.$") as error:
        source(None)
    assert str(error.value).startswith(type(source).__name__)


@pytest.mark.parametrize("source", [one for one in ON_DISK if isinstance(one, ImageFolder | Npz)], ids=repr)
def test_data_of_ones_own_are_looked_for_in_the_working_folder(
    source: DataSource, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    assert torch.equal(source(None).test.inputs, source(root).test.inputs)


@pytest.mark.parametrize("source", ON_DISK, ids=repr)
def test_a_root_that_is_no_folder_is_refused_by_name(source: DataSource, tmp_path: Path) -> None:
    with pytest.raises(InvalidCase, match=r"nowhere is not a folder; pass --data-root with the right one"):
        source(tmp_path / "nowhere")


def test_the_digits_are_split_after_four_fifths() -> None:
    digits = Digits()()
    assert (len(digits.train), len(digits.test)) == (1438, 359)  # 1,797 in all, as scikit-learn documents
    assert digits.space.shape == (1, 8, 8)
    assert set((digits.test.inputs * 16).flatten().tolist()) == set(range(17))
