"""The label of each example by what it does to one layer: the cotangent that an example has there depends on it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.func import grad, vmap

from leakgauge.errors import LeakGaugeError
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded

_DRAWS = 4
"""Inputs of noise on which a layer's activity is looked at."""

Cotangents = Callable[[Tensor, Tensor], Tensor]


def label_inputs(observation: UpdateObservation, inputs: Tensor, bias: str, cotangents: Tensor) -> Tensor | None:
    """A label for each input: of those given, each once, or of all classes the one under which its gradient of a
    ``bias`` points along the cotangent that was found. None where the model cannot tell.
    """
    labels = observation.labels
    try:
        classes = torch.arange(observation.learner.num_classes(observation.state, observation.probe))
        candidates = classes if labels is None else labels
        moved = _each_gradient(observation, bias)
        likeness = torch.stack(
            [_cosines(moved(one, candidates.to(one.device)), own) for one, own in zip(inputs, cotangents, strict=True)]
        )
    except (LeakGaugeError, RuntimeError):  # labels that are no classes, a loss that does not take one example
        return labels if labels is not None and len(inputs) == len(labels) == 1 else None
    if labels is None:
        return candidates[likeness.argmax(dim=1)].to(inputs.device)
    rows, columns = linear_sum_assignment(-likeness.numpy())
    order = torch.full((len(inputs),), -1, dtype=torch.long)
    order[torch.as_tensor(rows)] = torch.as_tensor(columns)
    return None if bool((order < 0).any()) else labels[order.to(labels.device)]


def moved_by_noise(observation: UpdateObservation, bias: str) -> float | None:
    """The share of entries of a bias that a single example of noise does not move; None where it cannot be run."""
    state, labels = observation.state, observation.labels
    drawn = torch.rand((_DRAWS, *observation.space.shape), generator=seeded(0, "activity"), dtype=torch.float64)
    noise = observation.space.decode(drawn.to(state.device, state.dtype))
    label = torch.zeros(1, dtype=torch.long, device=state.device) if labels is None else labels[:1]
    try:
        moved = _each_gradient(observation, bias)
        still = [float((moved(one, label) == 0).double().mean()) for one in noise]
    except (LeakGaugeError, RuntimeError):
        return None
    return min(still)


def _each_gradient(observation: UpdateObservation, bias: str) -> Cotangents:
    """The gradient of one bias for one input under each of several labels; all share the forward pass."""
    learner, state = observation.learner.without_dropout(), observation.state

    def loss(value: Tensor, one: Tensor, label: Tensor) -> Tensor:
        output = learner.logits({**state.params, bias: value}, state.buffers, one[None])
        return learner.loss(output, label[None])

    along = vmap(grad(loss), in_dims=(None, None, 0))
    return lambda one, labels: along(state.params[bias], one, labels)


def _cosines(gradients: Tensor, cotangent: Tensor) -> Tensor:
    flat = gradients.detach().cpu().double().flatten(1)
    return torch.nn.functional.cosine_similarity(flat, cotangent[None], dim=1)
