"""From an estimate of how often each class occurs to labels: as many as there are examples."""

from __future__ import annotations

import heapq
from abc import abstractmethod

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import LabelAttack
from leakgauge.protocol.observation import UpdateObservation, known


class CountRule(LabelAttack):
    """A label attack that estimates how many examples of each class there are.

    The labels it returns are the nearest whole counts that sum to the batch size, so that images can follow.
    """

    @abstractmethod
    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        """How often each class occurs, as C real numbers in float64; they need not sum to the batch size."""

    def restore(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        return as_labels(whole_counts(self.estimate(observation, generator=generator), num_examples), observation)


def as_labels(counts: Tensor, observation: UpdateObservation) -> Tensor:
    """Each class as often as it is counted, in order."""
    return torch.repeat_interleave(torch.arange(len(counts)), counts).to(observation.state.device)


def whole_counts(estimate: Tensor, total: int) -> Tensor:
    """The whole numbers >= 0 with the given sum that are nearest to an estimate, in the sum of squares.

    Exact: the cost is convex in each count, so one count after the other is changed where that costs least.

    >>> whole_counts(torch.tensor([1.45, -0.3, 0.4, 0.6]), 3)
    tensor([2, 0, 0, 1])
    """
    wanted = torch.nan_to_num(estimate.double(), nan=0.0, posinf=total, neginf=0.0)
    counts = wanted.round().clamp(0, total).long()
    missing = total - int(counts.sum())
    step = 1 if missing > 0 else -1
    found, target = counts.tolist(), wanted.tolist()

    def cost(index: int) -> float:
        # Of one step more: (n + s - x)^2 - (n - x)^2, halved.
        return 0.5 + step * (found[index] - target[index])

    queue = [(cost(index), index) for index in range(len(found)) if missing > 0 or found[index] > 0]
    heapq.heapify(queue)
    for _ in range(abs(missing)):
        _, index = queue[0]
        found[index] += step
        if found[index] == 0 and step < 0:
            heapq.heappop(queue)
        else:
            heapq.heapreplace(queue, (cost(index), index))
    return torch.tensor(found)
