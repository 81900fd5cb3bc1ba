from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.metrics.alignment import Comparison


@dataclass(frozen=True)
class LabelRecall:
    """1 for each private example whose label was restored, with multiplicity: of n_c examples the first min(n_c, r_c).

    Here r_c restored labels name class c, so the mean is sum_c min(n_c, r_c) / n, the instance recall of Ma et al.
    [2023]. Class probabilities count as their likeliest class. Recall does not punish naming too many labels.

    >>> images = torch.zeros(3, 1, 1, 1)
    >>> LabelRecall()(Comparison(images, images, None, torch.tensor([4, 4, 7]), torch.tensor([7, 4, 0])))
    tensor([1., 0., 1.], dtype=torch.float64)
    """

    name: ClassVar[str] = "label_recall"
    unit: ClassVar[str] = ""
    higher_is_leakier: ClassVar[bool] = True
    binary: ClassVar[bool] = True

    def __call__(self, comparison: Comparison) -> Tensor:
        if comparison.restored_labels is None:
            return torch.full(comparison.true_labels.shape[:1], torch.nan, dtype=torch.float64)
        unused = Counter(_classes(comparison.restored_labels))
        scores = []
        for label in _classes(comparison.true_labels):
            scores.append(float(unused[label] > 0))
            unused[label] -= 1
        return torch.tensor(scores, dtype=torch.float64)


def _classes(labels: Tensor) -> list[int]:
    return (labels.argmax(dim=1) if labels.ndim == 2 else labels.long()).tolist()
