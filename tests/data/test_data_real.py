"""The public benchmarks themselves, if the environment variable LEAKGAUGE_DATA names a folder that holds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leakgauge.data import Cifar10, Cifar100, ImageFolder, Mnist, Npz

ROOT = Path(os.environ.get("LEAKGAUGE_DATA", "."))

pytestmark = pytest.mark.skipif("LEAKGAUGE_DATA" not in os.environ, reason="LEAKGAUGE_DATA names no data folder")


def test_cifar10_has_a_thousand_test_images_of_each_class() -> None:
    dataset = Cifar10()(ROOT)
    assert dataset.test.labels.bincount().tolist() == [1000] * 10
    assert dataset.class_names[dataset.test.labels[0]] == "cat"  # the first test image shows a cat


def test_cifar100_has_a_hundred_test_images_of_each_fine_class_and_five_hundred_of_each_coarse_one() -> None:
    assert Cifar100()(ROOT).test.labels.bincount().tolist() == [100] * 100
    assert Cifar100(coarse=True)(ROOT).test.labels.bincount().tolist() == [500] * 20


def test_mnist_has_ten_thousand_test_images_and_the_first_is_a_seven() -> None:
    dataset = Mnist()(ROOT)
    assert len(dataset.test) == 10_000
    assert int(dataset.test.labels[0]) == 7


def test_the_orl_faces_are_four_hundred_of_forty_people() -> None:
    dataset = Npz("faces/att_orl.npz")(ROOT)
    assert len(dataset.train) + len(dataset.test) == 400
    assert dataset.test.labels.bincount().tolist() == [2] * 40
    assert dataset.space.shape == (1, 112, 92)


def test_a_folder_of_photographs_is_a_test_split_with_a_class_for_each() -> None:
    dataset = ImageFolder("imagenet_sample", size=64)(ROOT)
    assert len(dataset.test) == dataset.num_classes == 81
