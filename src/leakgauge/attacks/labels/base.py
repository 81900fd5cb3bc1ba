"""What rules for labels share: the classifier's part of an update, with mean cross-entropy dW = mean (p - y) e^T and
db = mean (p - y), and the way from counts of classes to labels, as many as there are examples."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.attacks.base import LabelAttack, finite_update
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.clients import examples_per_step, gain, way
from leakgauge.protocol.losses import CrossEntropy, LossFunction, Targets, summed
from leakgauge.protocol.observation import UpdateObservation, known


class Head(NamedTuple):
    """The last layer z = W e + b and its update, in float64 on the CPU; ``bias_update`` is None without a bias.

    ``weight`` is C x m: a row per class. Features e are what enters the layer, probabilities p = softmax(z).
    """

    weight: Tensor
    bias: Tensor | None
    weight_update: Tensor
    bias_update: Tensor | None

    @property
    def num_classes(self) -> int:
        return self.weight.shape[0]

    def logits(self, features: Tensor) -> Tensor:
        """W e + b for each row of ``features``."""
        scores = features @ self.weight.T
        return scores if self.bias is None else scores + self.bias

    def probabilities(self, features: Tensor) -> Tensor:
        return self.logits(features).softmax(dim=1)

    @property
    def row_sums(self) -> Tensor:
        """sum_m dW_cm = mean_k (p_c - y_c) sum_m e_m."""
        return self.weight_update.sum(dim=1)


def head_of(observation: UpdateObservation) -> Head:
    """The head and its update as observed, whatever its scale."""
    name = observation.learner.classifier(observation.state, observation.probe)
    update = finite_update(observation)
    held = {**observation.state.buffers, **observation.state.params}  # a frozen bias is a buffer, and has no update

    def double(tensors: dict[str, Tensor], part: str) -> Tensor | None:
        found = tensors.get(f"{name}.{part}")
        return None if found is None else found.detach().cpu().double()

    weight, weight_update = double(held, "weight"), double(dict(update), "weight")
    targets = observation.learner.targets
    if targets not in (Targets.CLASSES, Targets.BINARY, Targets.OWN):
        raise UnsupportedModel(
            f"The labels of this client are {targets.value}, which no rule for class labels can restore; disclose them."
        )
    if weight is None or weight_update is None:
        raise UnsupportedModel(
            f"The update holds no gradient of the classifier {name!r}, so no label can be read from it; "
            "disclose the labels or train the last layer."
        )
    head = Head(weight, double(held, "bias"), weight_update, double(dict(update), "bias"))
    return _two_classes(head) if targets is Targets.BINARY else head


def _two_classes(head: Head) -> Head:
    """One score z for the second of two classes is softmax with scores 0 and z; their gradients differ by the sign."""
    bias, moved = head.bias, head.bias_update
    return Head(
        torch.cat([torch.zeros_like(head.weight), head.weight]),
        None if bias is None else torch.cat([torch.zeros_like(bias), bias]),
        torch.cat([-head.weight_update, head.weight_update]),
        None if moved is None else torch.cat([-moved, moved]),
    )


def mean_gradient(observation: UpdateObservation, *, needed_by: object) -> Head:
    """The head with its update as a mean gradient: FedAvg's difference over rate and local steps, to first order."""
    client = known(observation.local_update, "local_update", needed_by=needed_by)
    num_examples = known(observation.num_examples, "num_examples", needed_by=needed_by)
    scale = known(gain(client, num_examples) or None, "the scale of the update", needed_by=needed_by)
    if summed(observation.learner.loss):
        scale *= examples_per_step(client, num_examples)
    head = head_of(observation)
    bias = None if head.bias_update is None else head.bias_update / scale
    return head._replace(weight_update=head.weight_update / scale, bias_update=bias)


def midway_gradient(observation: UpdateObservation, *, needed_by: object) -> Head:
    """As `mean_gradient`, with the head where a client of T local steps had it on average: W - (T - 1) / (2 T) update.

    To second order the mean of its gradients is the gradient there, were the features to stay as they are.
    """
    head = mean_gradient(observation, needed_by=needed_by)
    assert observation.num_examples is not None
    moved = way(observation.local_update, observation.num_examples)
    bias = head.bias if head.bias is None or head.bias_update is None else head.bias - moved * head.bias_update
    return head._replace(weight=head.weight - moved * head.weight_update, bias=bias)


class CountRule(LabelAttack):
    """A label attack that estimates how many examples of each class there are.

    The labels it returns are the nearest whole counts that sum to the batch size, so that images can follow.
    """

    @abstractmethod
    def estimate(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        """How often each class occurs, as C real numbers in float64; they need not sum to the batch size."""

    def restore(self, observation: UpdateObservation, *, generator: Generator) -> Tensor:
        num_examples = known(observation.num_examples, "num_examples", needed_by=self)
        counts = sharpen(self.estimate(observation, generator=generator), observation.learner.loss, num_examples)
        return as_labels(whole_counts(counts, num_examples), observation)


def sharpen(counts: Tensor, loss: LossFunction, num_examples: int) -> Tensor:
    """Counts of labels as they were before they were smoothed: n_c became (1 - a) n_c + a n / C.

    >>> sharpen(torch.tensor([1.8, 0.2]), CrossEntropy(label_smoothing=0.2), 2).round(decimals=3)
    tensor([2., 0.])
    """
    smoothing = loss.label_smoothing if isinstance(loss, CrossEntropy) else 0.0
    return (counts - smoothing * num_examples / len(counts)) / (1 - smoothing)


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
