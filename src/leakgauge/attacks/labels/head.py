"""The classifier's part of an update: with mean cross-entropy, dW = mean (p - y) e^T and db = mean (p - y)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from leakgauge.attacks.base import finite_update
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.clients import algorithm, local_steps
from leakgauge.protocol.local_update import FedAvg, LocalUpdate
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
    if weight is None or weight_update is None:
        raise UnsupportedModel(
            f"The update holds no gradient of the classifier {name!r}, so no label can be read from it; "
            "disclose the labels or train the last layer."
        )
    return Head(weight, double(held, "bias"), weight_update, double(dict(update), "bias"))


def mean_gradient(observation: UpdateObservation, *, needed_by: object) -> Head:
    """The head with its update as a mean gradient: FedAvg's difference over rate and local steps, to first order."""
    client = known(observation.local_update, "local_update", needed_by=needed_by)
    num_examples = known(observation.num_examples, "num_examples", needed_by=needed_by)
    scale = known(_scale(client, num_examples), "the scale of the update", needed_by=needed_by)
    head = head_of(observation)
    bias = None if head.bias_update is None else head.bias_update / scale
    return head._replace(weight_update=head.weight_update / scale, bias_update=bias)


def midway_gradient(observation: UpdateObservation, *, needed_by: object) -> Head:
    """As `mean_gradient`, with the head where a client of T local steps had it on average: W - (T - 1) / (2 T) update.

    To second order the mean of its gradients is the gradient there, were the features to stay as they are.
    """
    head = mean_gradient(observation, needed_by=needed_by)
    client, num_examples = observation.local_update, observation.num_examples
    averaging = algorithm(client)
    steps = None if num_examples is None else local_steps(client, num_examples)
    if not isinstance(averaging, FedAvg) or steps is None:
        return head
    way = averaging.learning_rate * (steps - 1) / 2
    bias = head.bias if head.bias is None or head.bias_update is None else head.bias - way * head.bias_update
    return head._replace(weight=head.weight - way * head.weight_update, bias=bias)


def _scale(client: LocalUpdate, num_examples: int) -> float | None:
    """How many mean gradients the update is worth; None for a client that is known by name only."""
    steps, averaging = local_steps(client, num_examples), algorithm(client)
    if steps is None:
        return None
    return averaging.learning_rate * steps or None if isinstance(averaging, FedAvg) else 1.0
