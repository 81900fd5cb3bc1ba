"""Counts from the size of the classifier's row sums, one example's impact at a time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from leakgauge.attacks.labels.base import CountRule, Head, head_of, mean_gradient
from leakgauge.attacks.labels.stand_ins import StandIns, check_source, stand_ins
from leakgauge.protocol.observation import UpdateObservation, known


@dataclass(frozen=True)
class LLG(CountRule):
    """Each negative row sum is a label; then the lowest remaining sum, again and again [Wainakh et al., 2022].

    With g_c = sum_m dW_cm and features >= 0, an example of class c adds its impact m < 0 to g_c, and the probabilities
    of all examples an offset s_c >= 0. Every g_c < 0 gives one label (the K lowest, if there are more) and loses m;
    until there are K, argmin_c (g_c - s_c) gives one more and loses m.

    ``source="gradient"``: m = (1 + 1/C) (sum of negative g) / K and s = 0, whatever the update's scale. "dummy" (LLG*)
    and "auxiliary" (LLG+): m and s are what the model shows on ``dummies`` images of noise given each label in turn, or
    on images of the same kind with their own labels: m = (1 + 1/C) / K times the mean of g_c over batches of class c,
    s_c the mean of g_c over batches of the other classes.
    """

    source: Literal["gradient", "dummy", "auxiliary"] = "gradient"
    dummies: int = 64

    def __post_init__(self) -> None:
        check_source(self, self.source, ("gradient", "dummy", "auxiliary"), self.dummies)

    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        if self.source == "gradient":
            head = head_of(observation)
            impact, offset = float(head.row_sums.clamp(max=0).sum()), torch.zeros(head.num_classes)
        else:
            head = mean_gradient(observation, needed_by=self)
            shown = stand_ins(observation, self.source, dummies=self.dummies, generator=generator, needed_by=self)
            impact, offset = impact_and_offset(head, shown)
        impact *= (1 + 1 / head.num_classes) / num_examples
        return greedy_counts(head.row_sums, offset, impact, num_examples)


def impact_and_offset(head: Head, shown: StandIns) -> tuple[float, Tensor]:
    """What batches of one class each do to the row sums: to their own class's on average, and to each other class's.

    A batch of class i has g_j = mean (p_j - [i = j]) sum_m e_m. Noise makes the same batch for every class.
    """
    classes = head.num_classes
    pushes, mass = head.probabilities(shown.features) * shown.mass[:, None], shown.mass
    labels = torch.ones(len(mass), classes, dtype=torch.float64) if shown.labels is None else shown.labels
    present = labels.sum(dim=0) > 0
    shares = labels[:, present] / labels[:, present].sum(dim=0)
    offsets = shares.T @ pushes  # a row per class present
    own = torch.zeros(classes, dtype=torch.float64)
    own[present] = offsets[:, present].diagonal()
    impact = own[present] - shares.T @ mass
    others = (int(present.sum()) - present.double()).clamp(min=1)
    return float(impact.mean()), (offsets.sum(dim=0) - own) / others


def greedy_counts(row_sums: Tensor, offset: Tensor, impact: float, num_examples: int) -> Tensor:
    """One label for each negative sum, then one at a time where sum - offset is lowest, each of the given impact.

    >>> greedy_counts(torch.tensor([-4.0, 1.0, -1.0]), torch.zeros(3), -1.0, 4)
    tensor([3., 0., 1.], dtype=torch.float64)
    """
    counts = torch.zeros(len(row_sums), dtype=torch.float64)
    negative = min(num_examples, int((row_sums < 0).sum()))
    counts[row_sums.argsort()[:negative]] = 1
    left = (row_sums - offset - impact * counts).tolist()
    queue = [(value, index) for index, value in enumerate(left)]
    heapq.heapify(queue)
    found = counts.tolist()
    for _ in range(num_examples - negative):
        value, index = queue[0]
        found[index] += 1
        heapq.heapreplace(queue, (value - impact, index))
    return torch.tensor(found, dtype=torch.float64)
