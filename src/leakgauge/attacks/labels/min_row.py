"""Labels from the smallest entry of each row of the classifier's update."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.attacks.labels.base import CountRule, head_of
from leakgauge.attacks.labels.idlg import count_labels
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class MinRow(CountRule):
    """The K classes with the smallest min_m dW_cm are the labels [Yin et al., 2021].

    With features e >= 0 only a class that is present has negative entries in its row, mean_k (p_c - y_c) e_m; one that
    the minimum finds is found even where the row's sum is positive. Meant for distinct labels: a class is counted again
    only when there are more examples than classes, in turn.
    """

    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        del generator
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        head = head_of(observation)
        order = head.weight_update.min(dim=1).values.argsort()
        return count_labels(order[torch.arange(num_examples) % head.num_classes], head.num_classes)
