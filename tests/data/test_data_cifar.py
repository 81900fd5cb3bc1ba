from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from leakgauge.data import Cifar10, Cifar100
from leakgauge.errors import InvalidFile

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 3072), np.uint8)


def write(path: Path, labels: list[list[int]], pixels: np.ndarray = PIXELS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.hstack([np.array(labels, np.uint8), pixels[: len(labels)]]).tobytes())


@pytest.mark.parametrize("folder", [".", "cifar-10-batches-bin"])
def test_cifar10_survives_the_round_trip_from_either_folder(tmp_path: Path, folder: str) -> None:
    write(tmp_path / folder / "test_batch.bin", [[3], [9], [0]])
    write(tmp_path / folder / "data_batch_1.bin", [[1], [2]])
    write(tmp_path / folder / "data_batch_4.bin", [[7]])
    dataset = Cifar10()(tmp_path)
    assert dataset.test.labels.tolist() == [3, 9, 0]
    assert dataset.train.labels.tolist() == [1, 2, 7]
    assert torch.equal((dataset.test.inputs * 255).round().byte().flatten(1), torch.from_numpy(PIXELS[:3]))
    assert dataset.space.shape == (3, 32, 32)


def test_without_training_files_the_train_split_is_empty(tmp_path: Path) -> None:
    write(tmp_path / "test_batch.bin", [[3]])
    train = Cifar10()(tmp_path).train
    assert train.inputs.shape == (0, 3, 32, 32)
    assert train.labels.dtype == torch.int64


def test_training_files_are_only_taken_from_beside_the_test_file(tmp_path: Path) -> None:
    write(tmp_path / "test_batch.bin", [[3]])
    write(tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin", [[1]])
    assert len(Cifar10()(tmp_path).train) == 0


@pytest.mark.parametrize("folder", [".", "cifar-100-binary"])
def test_cifar100_reads_the_coarse_label_first_and_the_fine_label_second(tmp_path: Path, folder: str) -> None:
    write(tmp_path / folder / "test.bin", [[19, 99], [4, 7]])
    write(tmp_path / folder / "train.bin", [[1, 2]])
    fine, coarse = Cifar100()(tmp_path), Cifar100(coarse=True)(tmp_path)
    assert (fine.test.labels.tolist(), fine.train.labels.tolist(), fine.num_classes) == ([99, 7], [2], 100)
    assert (coarse.test.labels.tolist(), coarse.train.labels.tolist(), coarse.num_classes) == ([19, 4], [1], 20)
    assert torch.equal(fine.test.inputs, coarse.test.inputs)


def test_classes_are_named_by_the_text_file_or_else_by_number(tmp_path: Path) -> None:
    write(tmp_path / "test_batch.bin", [[3]])
    assert Cifar10()(tmp_path).class_names == tuple("0123456789")
    (tmp_path / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n\n")
    assert Cifar10()(tmp_path).class_names == tuple("abcdefghij")


def test_a_text_file_that_names_too_few_classes_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "test.bin", [[1, 3]])
    (tmp_path / "fine_label_names.txt").write_text("apple\n")
    with pytest.raises(
        InvalidFile, match=r"fine_label_names.txt names 1 classes instead of 100; restore it or remove it"
    ):
        Cifar100()(tmp_path)


def test_the_test_file_is_required(tmp_path: Path) -> None:
    write(tmp_path / "data_batch_1.bin", [[3]])
    with pytest.raises(
        InvalidFile, match=r"^Cannot find test_batch.bin in .*cifar-10-batches-bin; put it there or correct"
    ):
        Cifar10()(tmp_path)


def test_a_truncated_file_is_named_with_its_size(tmp_path: Path) -> None:
    write(tmp_path / "test_batch.bin", [[3]])
    (tmp_path / "data_batch_2.bin").write_bytes(bytes(3072))
    with pytest.raises(InvalidFile, match=r"data_batch_2.bin has 3072 bytes, but .* multiple of 3073"):
        Cifar10()(tmp_path)


def test_cifar100_bytes_are_not_taken_for_cifar10(tmp_path: Path) -> None:
    write(tmp_path / "test_batch.bin", [[1, 3]])
    with pytest.raises(InvalidFile, match=r"has 3074 bytes"):
        Cifar10()(tmp_path)
