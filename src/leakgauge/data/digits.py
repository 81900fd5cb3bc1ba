"""Handwritten digits embedded in scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from leakgauge.data.datasets import Dataset
from leakgauge.types import Batch

TEST_SHARE = 0.2


@dataclass(frozen=True)
class Digits:
    """The 1,797 digits of 8 x 8 pixels in scikit-learn [Alpaydin & Kaynak, 1998]; the last fifth is test."""

    def __call__(self, root: Path | None = None) -> Dataset:
        del root  # embedded
        # Imported here because it takes over a second, which every other data source would pay.
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = torch.from_numpy(digits.images).float().div_(16).unsqueeze(1)
        labels = torch.from_numpy(digits.target).long()
        num_train = round(len(labels) * (1 - TEST_SHARE))
        return Dataset(
            name="digits",
            train=Batch(images[:num_train], labels[:num_train]),
            test=Batch(images[num_train:], labels[num_train:]),
            class_names=tuple(str(digit) for digit in range(10)),
        )
