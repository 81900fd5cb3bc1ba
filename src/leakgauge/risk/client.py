"""A client without data: the model, and noise in the place of its private batch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leakgauge.clocks import Seconds
from leakgauge.defences import NoDefence
from leakgauge.errors import InvalidCase
from leakgauge.protocol.learner import Learner, Mode, learner_and_state
from leakgauge.protocol.local_update import Sent
from leakgauge.protocol.losses import LossFunction, Targets, check_labels, draw_labels
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.protocol.round import Federation, disclose
from leakgauge.protocol.threat_model import THREAT_MODELS
from leakgauge.protocol.validation import check_loss, check_model
from leakgauge.randomness import seeded
from leakgauge.space import InputSpace
from leakgauge.types import Batch, ModelState

_AFFORDED = 0.5
"""CPU seconds of one training step up to which all examples are computed with; of slower ones, as many as fit."""


@dataclass(frozen=True)
class NoiseClient:
    """``batch`` has all examples of an update; what costs much is done with the first of them, ``computed``."""

    federation: Federation
    space: InputSpace
    batch: Batch
    computed: int
    sent: Sent
    """The update of the examples that are computed with."""
    training_step: float
    """CPU seconds of that update."""

    @property
    def learner(self) -> Learner:
        return self.federation.learner

    @property
    def state(self) -> ModelState:
        return self.federation.state

    @property
    def some(self) -> Batch:
        return self.batch[slice(self.computed)]

    @property
    def scale(self) -> float:
        """How much more work the whole batch is than what was computed with."""
        return len(self.batch) / self.computed

    def observe(
        self, threat_model: str, *, federation: Federation | None = None, examples: int | None = None
    ) -> UpdateObservation:
        """What a server sees of an update; ``examples`` are how many it is told of, or all that were computed with.

        A ``federation`` that a server tampered with sends another update.
        """
        known = THREAT_MODELS[threat_model]
        sent = self.sent if federation is None else _send(federation, self.some)
        auxiliary = self.batch[slice(_FEW)] if known.auxiliary else None
        seen = disclose(
            federation or self.federation, NoDefence(), self.some, sent, threat_model=known, auxiliary=auxiliary
        )
        if examples is None or seen.num_examples is None:
            return seen
        labels = None if seen.labels is None else self.batch.labels[:examples]
        return replace(seen, num_examples=examples, labels=labels)

    def alone(self) -> NoiseClient:
        """The same client with one example."""
        one = self.batch[slice(1)]
        return replace(self, batch=one, computed=1, sent=_send(self.federation, one))


def _send(federation: Federation, batch: Batch) -> Sent:
    return federation.local_update.send(federation.learner, federation.state, batch, generator=seeded(0, "check"))


_FEW = 16
"""Examples that a server with images of its own is given."""


def noise_client(
    model: nn.Module, loss: LossFunction, space: InputSpace, batch_size: int, mode: Mode, labels: Tensor | None
) -> NoiseClient:
    """The client of a model, after making sure that it runs; what does not fit is refused with its layer."""
    if batch_size < 1:
        raise InvalidCase(f"An update has one example or more, got batch_size={batch_size}; correct it.")
    learner, state = learner_and_state(model, loss, mode=mode)
    width = check_model(learner, state, space, None)
    generator = seeded(0, "check")
    inputs = space.place(space.draw(batch_size, generator=generator), state)
    batch = Batch(inputs, _labels(learner, state, inputs, width, labels).to(state.device))
    check_labels(learner.loss, batch.labels, width)
    federation = Federation(learner, state, space=space)
    least = min(batch_size, 2 if mode == "train" else 1)
    check_loss(learner, state, batch[slice(least)])
    once, _ = _timed_update(federation, batch[slice(least)])
    computed = min(batch_size, max(least, int(_AFFORDED * least / max(once, 1e-6))))
    taken, sent = _timed_update(federation, batch[slice(computed)])
    return NoiseClient(federation, space, batch, computed, sent, taken)


def _timed_update(federation: Federation, batch: Batch) -> tuple[float, Sent]:
    """CPU seconds of an update, the quickest of a few, as the first ones also prepare; and the update."""
    found: list[float] = []
    while len(found) < _REPEATS and sum(found) < _AFFORDED:
        started = Seconds.now()
        sent = _send(federation, batch)
        found.append((Seconds.now() - started).cpu)
    return min(found), sent


_REPEATS = 4


def _labels(learner: Learner, state: ModelState, inputs: Tensor, width: int, given: Tensor | None) -> Tensor:
    """Labels as the loss takes them; of a user's own loss, given ones over and over, or the first kind that works."""
    count = len(inputs)
    if given is not None:
        return given[torch.arange(count) % len(given)]
    generator = seeded(0, "check labels")
    if learner.targets is Targets.VALUES:
        return torch.rand(count, max(width, 1), generator=generator)
    if learner.targets is not Targets.OWN:
        return draw_labels(learner.loss, count, width, like=None, generator=generator)
    with torch.no_grad():
        output = learner.scores(state, inputs[:2])
    for labels in _guesses(output, count):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # such as that sizes differ and one will be stretched
                check_loss(learner, state, Batch(inputs[:2], labels[: len(inputs[:2])].to(state.device)))
        except InvalidCase:
            continue
        return labels
    raise InvalidCase(
        "What labels this loss takes only its author knows, and class numbers, tags and values do not fit; pass a few "
        "to leakgauge.check(..., labels=...) from Python."
    )


def _guesses(output: Any, count: int) -> Iterator[Tensor]:
    """Class numbers, then values of the shapes that the model returns, then one value per example."""
    parts = [part for part in pytree.tree_leaves(output) if isinstance(part, Tensor) and part.ndim]
    classes = [part.shape[1] for part in parts if part.ndim == 2]
    if classes:
        yield torch.arange(count) % min(classes)
        yield (torch.arange(count)[:, None] % torch.tensor(classes)).long()  # a column for each head
    for part in parts:
        yield torch.full((count, *part.shape[1:]), 0.5)
    yield torch.arange(count) % 2
    yield torch.full((count,), 0.5)
