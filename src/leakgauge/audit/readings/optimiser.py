"""How the client steps: Adam and its kin, momentum, weight decay, several steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from leakgauge import params as tree
from leakgauge.audit.readings.base import RoundReading, Seen
from leakgauge.protocol.clients import local_steps
from leakgauge.protocol.local_update import FedAvg
from leakgauge.protocol.optimisers import LocalAdam, LocalAdamW, LocalSGD
from leakgauge.protocol.running_statistics import batches_seen
from leakgauge.types import ParamTree

_EPOCHS = (2, 3, 5, 10)


def read_optimiser(seen: Seen) -> Iterator[RoundReading]:
    """Adam, AdamW and, over several steps, momentum; their rate is as long as the longest way an entry came."""
    plain = seen.steps()
    if not isinstance(plain.optimiser, LocalSGD):
        yield seen.with_client("optimiser", "the client stepped by plain SGD", seen.steps(optimiser=LocalSGD()))
        return
    count = local_steps(plain, seen.num_examples or 1) or 1
    rate = float(torch.stack([tensor.abs().max() for tensor in seen.observed.values()]).max()) / count
    yield seen.with_client(
        "optimiser", "the client stepped by Adam", seen.steps(optimiser=LocalAdam(), learning_rate=rate)
    )
    yield seen.with_client(
        "optimiser", "the client stepped by AdamW", seen.steps(optimiser=LocalAdamW(), learning_rate=rate)
    )
    if count > 1 and not plain.optimiser.momentum:
        yield seen.with_client(
            "optimiser", "the client stepped with a momentum of 0.9", seen.steps(optimiser=LocalSGD(momentum=0.9))
        )


def read_weight_decay(seen: Seen) -> Iterator[RoundReading]:
    """Weight decay adds a multiple of the weights to the update; how much, the best inputs so far tell."""
    plain = seen.steps()
    declared = plain.optimiser
    if seen.expected is None or not isinstance(declared, LocalSGD | LocalAdam | LocalAdamW):
        return
    if declared.weight_decay != type(declared)().weight_decay:
        return  # somebody said which
    along, aside = _two_shares(seen.observed, seen.expected, seen.state.params)
    count = local_steps(plain, seen.num_examples or 1) or 1
    if along <= 0 or aside <= 0:
        return
    rate = plain.learning_rate * along
    decay = declared.weight_decay + aside / (rate * count)
    sgd = isinstance(declared, LocalSGD)
    optimiser = replace(declared, weight_decay=decay) if sgd else LocalAdamW(weight_decay=decay)
    words = f"the client decays its weights by about {decay:.2g}"
    yield seen.with_client("weight decay", words, seen.steps(optimiser=optimiser, learning_rate=rate))


def read_steps(seen: Seen) -> Iterator[RoundReading]:
    """Several steps where one is declared, in mini-batches where there are several examples."""
    plain, examples = seen.steps(), seen.num_examples or 1
    counted = batches_seen(seen.recorded.update)
    plans = [(epochs, examples) for epochs in _EPOCHS]
    plans += [(1, size) for size in {1, examples // 2} if 0 < size < examples]
    if counted is not None and counted > 1:
        plans = [(counted, examples)]
    declared = local_steps(plain, examples)
    for epochs, size in plans:
        client = seen.steps(epochs=epochs, batch_size=size)
        count = local_steps(client, examples) or 1
        if count == declared:
            continue
        rate = plain.learning_rate * (declared or 1) / count
        words = f"the client made {count} local steps of {size}"
        yield seen.with_client("steps", words, seen.steps(epochs=epochs, batch_size=size, learning_rate=rate))


def rescale(seen: Seen, factor: float) -> RoundReading | None:
    """The same client with as many times its rate; None where the length of an update is not up to a rate."""
    if not 0 < factor < float("inf"):
        return None
    client = seen.steps()
    rate = client.learning_rate * factor
    if seen.client is not None and not isinstance(seen.client, FedAvg) and seen.recorded.local_update != "fedsgd":
        return None
    words = f"the update is {factor:.3g} times as long as declared: a learning rate of {rate:.3g}"
    return seen.with_client("scale", words, seen.steps(learning_rate=rate))


def _two_shares(target: ParamTree, one: ParamTree, two: ParamTree) -> tuple[float, float]:
    """The factors a and b that bring a * one + b * two nearest to the target."""
    basis = [{name: tree_[name].double() for name in target} for tree_ in (one, two)]
    goal = {name: tensor.double() for name, tensor in target.items()}
    gram = torch.stack([torch.stack([tree.dot(left, right) for right in basis]) for left in basis])
    side = torch.stack([tree.dot(left, goal) for left in basis])
    found = torch.linalg.lstsq(gram, side[:, None]).solution.flatten()
    return float(found[0]), float(found[1])
