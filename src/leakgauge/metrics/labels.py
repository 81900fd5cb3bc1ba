"""How many labels came back, and what somebody would score who has not seen the update."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from leakgauge.errors import InvalidCase
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
    serves = Kind.LABELS
    binary = True

    def __call__(self, comparison: Comparison) -> Tensor:
        if comparison.restored_labels is None or comparison.true_labels.ndim > 2:  # a label for every pixel is no class
            return torch.full(comparison.true_labels.shape[:1], torch.nan, dtype=torch.float64)
        unused = Counter(_classes(comparison.restored_labels).tolist())
        scores = []
        for label in _classes(comparison.true_labels).tolist():
            scores.append(float(unused[label] > 0))
            unused[label] -= 1
        return torch.tensor(scores, dtype=torch.float64)


@dataclass(frozen=True)
class _ShareOfClasses(Metric, ABC):
    """The share of all C classes of which something was restored, one score per batch."""

    serves = Kind.LABELS
    per_batch = True

    @abstractmethod
    def right(self, true: Tensor, restored: Tensor) -> Tensor:
        """Whether it was, class by class, by the examples that each class has."""

    def __call__(self, comparison: Comparison) -> Tensor:
        restored, num_classes = comparison.restored_labels, comparison.num_classes
        if restored is None or num_classes is None or restored.ndim > 2:
            return torch.full((1,), torch.nan, dtype=torch.float64)
        true = class_counts(comparison.true_labels, num_classes)
        return self.right(true, class_counts(restored, num_classes)).double().mean(dim=0, keepdim=True)


@final
@dataclass(frozen=True)
class LabelExistence(_ShareOfClasses):
    """The share of all C classes of which it was restored whether the batch holds them, one score per batch.

    The label existence accuracy (LeAcc) of Ma et al. [2023]. Absent classes count too, so with many more classes than
    examples a blind guess scores high: read it beside the guess.

    >>> images = torch.zeros(3, 1, 1, 1)
    >>> restored = torch.tensor([0, 0, 1])
    >>> LabelExistence()(Comparison(images, images, None, torch.tensor([0, 1, 1]), restored, num_classes=4))
    tensor([1.], dtype=torch.float64)
    """

    name, title = "label_existence", "Class presence right (LeAcc)"

    def right(self, true: Tensor, restored: Tensor) -> Tensor:
        return (true > 0) == (restored > 0)


@final
@dataclass(frozen=True)
class LabelCounts(_ShareOfClasses):
    """The share of all C classes whose number of examples was restored exactly, one score per batch.

    The label number accuracy (LnAcc) of Ma et al. [2023]; as with LeAcc, absent classes count.

    >>> images = torch.zeros(3, 1, 1, 1)
    >>> restored = torch.tensor([0, 0, 1])
    >>> LabelCounts()(Comparison(images, images, None, torch.tensor([0, 1, 1]), restored, num_classes=4))
    tensor([0.5000], dtype=torch.float64)
    """

    name, title = "label_counts", "Class counts right (LnAcc)"

    def right(self, true: Tensor, restored: Tensor) -> Tensor:
        return true == restored


def class_counts(labels: Tensor, num_classes: int) -> Tensor:
    """How many examples each of C classes has; probabilities count as their likeliest class, other classes not at all.

    >>> class_counts(torch.tensor([2, 0, 2, 9]), 3)
    tensor([1, 0, 2])
    """
    return torch.bincount(_classes(labels), minlength=num_classes)[:num_classes]


def expected_guess(true_counts: Sequence[int], prior: Sequence[float] | None = None) -> dict[str, float]:
    """Expected score, by metric, of as many labels as there are, drawn independently from ``prior`` (uniform if None).

    Exact: class c is drawn X_c ~ Binomial(K, p_c) times, recall is sum_c E min(n_c, X_c) / K, the share of classes with
    the right count is mean_c P(X_c = n_c), and with the right presence mean_c P(X_c > 0) or P(X_c = 0).

    >>> expected_guess([1, 0])
    {'label_recall': 0.5, 'label_existence': 0.5, 'label_counts': 0.5}
    """
    counts = np.asarray(true_counts, dtype=np.int64)
    classes, total = len(counts), int(counts.sum())
    chances = np.full(classes, 1 / max(classes, 1)) if prior is None else np.asarray(prior, dtype=np.float64)
    if chances.shape != counts.shape or not (chances >= 0).all() or not np.isclose(chances.sum(), 1):
        raise InvalidCase(
            f"A prior over {classes} classes needs as many chances >= 0 with sum 1, got {chances.tolist()[:5]}...; "
            "normalise it."
        )
    if total == 0:
        return dict.fromkeys((LabelRecall.name, LabelExistence.name, LabelCounts.name), math.nan)
    # E min(n, X) = n P(X > n) + E[X; X <= n], and E[X; X <= n] = K p P(Binomial(K - 1, p) <= n - 1).
    hits = counts * binom.sf(counts, total, chances) + total * chances * binom.cdf(counts - 1, total - 1, chances)
    absent = binom.pmf(0, total, chances)
    return {
        LabelRecall.name: float(hits.sum() / total),
        LabelExistence.name: float(np.where(counts > 0, 1 - absent, absent).mean()),
        LabelCounts.name: float(binom.pmf(counts, total, chances).mean()),
    }


def _classes(labels: Tensor) -> Tensor:
    return labels.argmax(dim=1) if labels.ndim == 2 else labels.long()
