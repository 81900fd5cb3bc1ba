"""Labels from the sign of the classifier's update."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.attacks.labels.base import CountRule, head_of
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class IDLG(CountRule):
    """The class whose classifier row has a negative update is the label [Zhao et al., 2020].

    With mean cross-entropy the bias update of class i is mean(p_i) - share of i in the batch, negative only for classes
    present. Exact for one example, and for several with distinct labels while the model is not yet confident. Without
    a bias the row sum stands in, which needs non-negative features. Fewer negative classes than examples mean repeats:
    the most negative classes are then counted again, in turn.
    """

    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        del generator
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        head = head_of(observation)
        scores = head.row_sums if head.bias_update is None else head.bias_update
        return count_labels(labels_from_scores(scores, num_examples), head.num_classes)


def count_labels(labels: Tensor, num_classes: int) -> Tensor:
    return torch.bincount(labels, minlength=num_classes).double()


def labels_from_scores(scores: Tensor, num_examples: int) -> Tensor:
    """The ``num_examples`` most negative classes, repeated in turn when too few are negative.

    >>> labels_from_scores(torch.tensor([0.2, -0.7, 0.9, -0.4]), 2)
    tensor([1, 3])
    >>> labels_from_scores(torch.tensor([0.2, -0.7, 0.9, -0.4]), 3)
    tensor([1, 1, 3])
    """
    order = scores.argsort()
    present = max(1, min(num_examples, int((scores < 0).sum())))
    return order[torch.arange(num_examples, device=scores.device) % present].sort().values
