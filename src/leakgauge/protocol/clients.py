"""What a client is made of: the one place that looks inside its wrappers, DP-SGD and aggregation included."""

from __future__ import annotations

import math
from dataclasses import replace

from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import (
    Departure,
    FedSGD,
    LocalSteps,
    LocalUpdate,
    Transformed,
    UpdateTransform,
    Wrapped,
)
from leakgauge.protocol.losses import summed
from leakgauge.protocol.wrappers import Aggregated, Private

_STRONGEST_FIRST = (Departure.GAUSSIAN, Departure.LAPLACE, Departure.LENGTH)


def layers(client: LocalUpdate | None) -> list[LocalUpdate]:
    """The client from the outside in: what is done to it, and last the algorithm that computes the update."""
    found: list[LocalUpdate] = []
    while client is not None:
        found.append(client)
        client = client.inner if isinstance(client, Wrapped) else None
    return found


def algorithm(client: LocalUpdate | None) -> LocalUpdate | None:
    """The local algorithm under everything that is done to it: FedSGD under DP-SGD is FedSGD."""
    return None if client is None else layers(client)[-1]


def computation(client: LocalUpdate) -> LocalUpdate:
    """What computes the finished update: all but the transforms around it; FedSGD under DP-SGD is DP-SGD."""
    while isinstance(client, Transformed):
        client = client.inner
    return client


def finishing(client: LocalUpdate) -> list[UpdateTransform]:
    """What the client does to the result of its `computation`, in order."""
    found: list[UpdateTransform] = []
    while isinstance(client, Transformed):
        found.insert(0, client.transform)
        client = client.inner
    return found


def transforms(client: LocalUpdate | None) -> list[UpdateTransform]:
    """The transforms of a client, wherever they stand, in the order of application."""
    return [layer.transform for layer in reversed(layers(client)) if isinstance(layer, Transformed)]


def with_algorithm(client: LocalUpdate, other: LocalUpdate) -> LocalUpdate:
    """The same wrappers around another local algorithm."""
    return replace(client, inner=with_algorithm(client.inner, other)) if isinstance(client, Wrapped) else other


def with_computation(client: LocalUpdate, other: LocalUpdate) -> LocalUpdate:
    """The same transforms around another computation of the update."""
    return replace(client, inner=with_computation(client.inner, other)) if isinstance(client, Transformed) else other


def departure(client: LocalUpdate | None) -> Departure:
    """How what is sent departs from what is anticipated, in the one respect that decides most: noise before length."""
    found = {layer.departure for layer in layers(client) if isinstance(layer, Wrapped)}
    return next((kind for kind in _STRONGEST_FIRST if kind in found), Departure.NONE)


def clients_behind(client: LocalUpdate | None) -> int:
    """How many clients' updates the server sees as one."""
    return math.prod(layer.clients for layer in layers(client) if isinstance(layer, Aggregated))


def mixes(client: LocalUpdate | None) -> bool:
    """Whether the client trains on mixtures of its examples."""
    return any(transform.mixes for transform in transforms(client))


def flips_signs(client: LocalUpdate | None) -> bool:
    """Whether it also reflects their pixels at random."""
    return any(transform.flips_signs for transform in transforms(client))


def local_steps(client: LocalUpdate | None, num_examples: int) -> int | None:
    """How many steps each client makes when together they hold so many examples; None where that is not known."""
    steps = algorithm(client)
    if isinstance(steps, FedSGD):
        return 1
    return len(steps.steps(num_examples // clients_behind(client))) if isinstance(steps, LocalSteps) else None


def examples_per_step(client: LocalUpdate | None, num_examples: int) -> float:
    """How many examples the gradient of one step is of, on average."""
    own, steps = num_examples // clients_behind(client), algorithm(client)
    if not isinstance(steps, LocalSteps):
        return own
    batches = [part for step in steps.steps(own) for part in step]
    return sum(part.stop - part.start for part in batches) / len(batches)


def sums_gradients(client: LocalUpdate | None) -> bool:
    """Whether the update is a sum of gradients on the client's way and of nothing else, as far as is known."""
    steps = algorithm(client)
    return steps.rule.sums_gradients if isinstance(steps, LocalSteps) else True


def gain(client: LocalUpdate | None, num_examples: int) -> float | None:
    """How many mean gradients the update is worth if they stay the same on the way; None where it is no multiple."""
    steps, count = algorithm(client), local_steps(client, num_examples)
    if count is None:
        return None
    # DP-SGD may divide by another number of examples than a mean does.
    size = round(examples_per_step(client, num_examples))
    shares = [size / layer.divisor(size) for layer in layers(client) if isinstance(layer, Private)]
    worth = steps.rule.gain(count) if isinstance(steps, LocalSteps) else 1.0
    return None if worth is None else worth * math.prod(shares)


def way(client: LocalUpdate | None, num_examples: int) -> float:
    """How many mean gradients the client has come on average when it takes one; 0 for a single gradient."""
    steps, count = algorithm(client), local_steps(client, num_examples)
    if not isinstance(steps, LocalSteps) or not count:
        return 0.0
    return sum(steps.rule.gain(index) or 0.0 for index in range(count)) / count


def is_mean_gradient(client: LocalUpdate) -> bool:
    """Whether the update of all examples is the mean of the updates of equal parts."""
    if isinstance(client, Transformed):
        return client.transform.mixes and is_mean_gradient(client.inner)
    if isinstance(client, Private) and client.expected_batch_size is not None:
        return False  # each part would be divided by what is expected of the whole
    return isinstance(client, FedSGD) or (isinstance(client, Private | Aggregated) and is_mean_gradient(client.inner))


def merge_clients(client: LocalUpdate, learner: Learner) -> LocalUpdate:
    """An aggregate of plain gradients as the gradient of all examples, which it is unless they meet or are summed."""
    meets = (learner.mode == "train" and learner.batch_norm_layers()) or summed(learner.loss)
    aggregate = computation(client)
    if not isinstance(aggregate, Aggregated) or meets or not is_mean_gradient(aggregate.inner):
        return client
    return with_computation(client, aggregate.inner)
