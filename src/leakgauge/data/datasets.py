"""What an audit draws its private examples from, and how a data source is called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch


@dataclass(frozen=True)
class Dataset:
    """Inputs with class numbers: ``train`` is what the model may have seen, ``test`` what audits draw from.

    ``highlights`` are indices into ``test`` of the examples worth showing first. ``train`` may be empty. Without a
    ``space``, the inputs are images of the size that they have. ``strangers`` are of the same kind and of no class:
    nobody trains on them, they only stand in crowds; their labels are -1.
    """

    name: str
    train: Batch
    test: Batch
    class_names: tuple[str, ...]
    highlights: tuple[int, ...] = ()
    space: InputSpace = None  # type: ignore[assignment]
    strangers: Batch | None = None

    def __post_init__(self) -> None:
        if self.train.inputs.shape[1:] != self.test.inputs.shape[1:]:
            raise InvalidCase(
                f"The train and test inputs of {self.name!r} have shapes {tuple(self.train.inputs.shape[1:])} and "
                f"{tuple(self.test.inputs.shape[1:])}; bring them to one shape."
            )
        if self.space is None:
            object.__setattr__(self, "space", ImageSpace.of(self.test.inputs))
        labels = torch.cat((self.train.labels, self.test.labels))
        if labels.ndim != 1 or bool(((labels < 0) | (labels >= self.num_classes)).any()):
            raise InvalidCase(
                f"The labels of {self.name!r} must be class numbers from 0 to {self.num_classes - 1}, one per input; "
                "renumber them or name every class."
            )
        if not all(0 <= index < len(self.test) for index in self.highlights):
            raise InvalidCase(
                f"The highlights {self.highlights} of {self.name!r} reach beyond its {len(self.test)} test inputs; "
                "give indices into the test split."
            )

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def draw(self, num_examples: int, *, generator: torch.Generator, distinct_labels: bool = False) -> Tensor:
        """Distinct random indices into ``test``; with ``distinct_labels``, no label repeats before all are used."""
        if num_examples <= 0:
            raise InvalidCase(f"Cannot draw {num_examples} examples from {self.name!r}; ask for at least 1.")
        if num_examples > len(self.test):
            raise InvalidCase(
                f"Cannot draw {num_examples} examples from {self.name!r}, whose test split has {len(self.test)}; "
                "ask for fewer."
            )
        order = torch.randperm(len(self.test), generator=generator)
        if not distinct_labels:
            return order[:num_examples]
        present = len(self.test.labels.unique())
        if present < num_examples <= self.num_classes:
            raise InvalidCase(
                f"Cannot draw {num_examples} distinct labels from {self.name!r}, whose test split has {present} of its "
                f"{self.num_classes} classes; ask for at most {present}."
            )
        ranks = rank_within_class(self.test.labels[order])
        return order[ranks.argsort(stable=True)[:num_examples]]


class DataSource(Protocol):
    """A frozen dataclass whose fields are its configuration; calling it reads the data below ``root``."""

    def __call__(self, root: Path | None) -> Dataset: ...


def rank_within_class(labels: Tensor) -> Tensor:
    """How many earlier entries carry the same label.

    >>> rank_within_class(torch.tensor([5, 2, 5, 5, 2]))
    tensor([0, 0, 1, 2, 1])
    """
    order = labels.argsort(stable=True)
    grouped = labels[order]
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(labels)) - torch.searchsorted(grouped, grouped)
    return ranks


def share_pixels(left: Tensor, right: Tensor) -> Tensor:
    """Which of the regions ``left`` (rows) overlap which of ``right`` (columns); see `Batch.regions`.

    >>> share_pixels(torch.tensor([[0, 0, 0, 4, 4]]), torch.tensor([[0, 2, 3, 9, 9], [0, 4, 0, 8, 4], [1, 0, 0, 4, 4]]))
    tensor([[ True, False, False]])
    """
    one, other = left[:, None], right[None]
    begins_before = (one[..., 1:3] < other[..., 3:5]).all(dim=-1)
    ends_after = (one[..., 3:5] > other[..., 1:3]).all(dim=-1)
    return (one[..., 0] == other[..., 0]) & begins_before & ends_after


def share_picture(left: Tensor, right: Tensor) -> Tensor:
    """Which of the regions ``left`` (rows) are cut from the same picture as which of ``right`` (columns).

    >>> share_picture(torch.tensor([[0, 0, 0, 4, 4]]), torch.tensor([[0, 4, 0, 8, 4], [1, 0, 0, 4, 4]]))
    tensor([[ True, False]])
    """
    return left[:, None, 0] == right[None, :, 0]


def split_every_fifth(batch: Batch) -> tuple[Batch, Batch]:
    """Train and test: the first example of each class and every fifth after it are test, so no class lacks one."""
    is_test = rank_within_class(batch.labels) % 5 == 0
    return batch[~is_test], batch[is_test]
