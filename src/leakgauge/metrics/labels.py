from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.base import Kind, Metric


@final
@dataclass(frozen=True)
class LabelRecall(Metric):
    """1 for each private example whose label was restored, with multiplicity: of n_c examples the first min(n_c, r_c).

    Here r_c restored labels name class c, so the mean is sum_c min(n_c, r_c) / n, the instance recall of Ma et al.
    [2023]. Class probabilities count as their likeliest class. Recall does not punish naming too many labels.

    >>> images = torch.zeros(3, 1, 1, 1)
    >>> LabelRecall()(Comparison(images, images, None, torch.tensor([4, 4, 7]), torch.tensor([7, 4, 0])))
    tensor([1., 0., 1.], dtype=torch.float64)
    """

    name, title, heading = "label_recall", "Labels restored", "labels"
    low, high, exact = 0.0, 1.0, 1.0
    serves = Kind.LABELS
    binary = True

    def __call__(self, comparison: Comparison) -> Tensor:
        if comparison.restored_labels is None:
            return torch.full(comparison.true_labels.shape[:1], torch.nan, dtype=torch.float64)
        unused = Counter(_classes(comparison.restored_labels).tolist())
        scores = []
        for label in _classes(comparison.true_labels).tolist():
            scores.append(float(unused[label] > 0))
            unused[label] -= 1
        return torch.tensor(scores, dtype=torch.float64)


@final
@dataclass(frozen=True)
class LabelExistence(Metric):
    """The share of all C classes of which it was restored whether the batch holds them, one score per batch.

    The label existence accuracy (LeAcc) of Ma et al. [2023]. Absent classes count too, so with many more classes than
    examples a blind guess scores high: read it beside the guess.

    >>> images = torch.zeros(3, 1, 1, 1)
    >>> restored = torch.tensor([0, 0, 1])
    >>> LabelExistence()(Comparison(images, images, None, torch.tensor([0, 1, 1]), restored, num_classes=4))
    tensor([1.], dtype=torch.float64)
    """

    name, title = "label_existence", "Class presence right (LeAcc)"
    low, high, exact = 0.0, 1.0, 1.0
    serves = Kind.LABELS
    per_batch = True

    def __call__(self, comparison: Comparison) -> Tensor:
        return _share_of_classes(comparison, lambda true, restored: (true > 0) == (restored > 0))


@final
@dataclass(frozen=True)
class LabelCounts(Metric):
    """The share of all C classes whose number of examples was restored exactly, one score per batch.

    The label number accuracy (LnAcc) of Ma et al. [2023]; as with LeAcc, absent classes count.

    >>> images = torch.zeros(3, 1, 1, 1)
    >>> restored = torch.tensor([0, 0, 1])
    >>> LabelCounts()(Comparison(images, images, None, torch.tensor([0, 1, 1]), restored, num_classes=4))
    tensor([0.5000], dtype=torch.float64)
    """

    name, title = "label_counts", "Class counts right (LnAcc)"
    low, high, exact = 0.0, 1.0, 1.0
    serves = Kind.LABELS
    per_batch = True

    def __call__(self, comparison: Comparison) -> Tensor:
        return _share_of_classes(comparison, torch.eq)


def class_counts(labels: Tensor, num_classes: int) -> Tensor:
    """How many examples each of C classes has; probabilities count as their likeliest class, other classes not at all.

    >>> class_counts(torch.tensor([2, 0, 2, 9]), 3)
    tensor([1, 0, 2])
    """
    return torch.bincount(_classes(labels), minlength=num_classes)[:num_classes]


def _share_of_classes(comparison: Comparison, right: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    restored, num_classes = comparison.restored_labels, comparison.num_classes
    if restored is None or num_classes is None:
        return torch.full((1,), torch.nan, dtype=torch.float64)
    true = class_counts(comparison.true_labels, num_classes)
    return right(true, class_counts(restored, num_classes)).double().mean(dim=0, keepdim=True)


def _classes(labels: Tensor) -> Tensor:
    return labels.argmax(dim=1) if labels.ndim == 2 else labels.long()
