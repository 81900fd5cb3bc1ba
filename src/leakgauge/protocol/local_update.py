"""The client's algorithm as a pure function of the batch, run by the client and, on candidates, by the attacker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import Encoding
from leakgauge.protocol.learner import Learner
from leakgauge.randomness import global_stream
from leakgauge.types import Batch, ModelState, ParamTree, Update


class Sent(NamedTuple):
    """What a client computed, and what it trained on; the threat model decides what of both leaves it."""

    update: Update
    encoding: Encoding


class LocalUpdate(ABC):
    """How a client turns the server's state and its private batch into an update."""

    @abstractmethod
    def expected(self, learner: Learner, state: ModelState, batch: Batch, *, observed: ParamTree) -> ParamTree:
        """The update an attacker who knows this algorithm predicts for a candidate of what the client trained on.

        Deterministic and differentiable in the batch. A client that encodes its batch first is explained by the
        encoding, since no draw of the client is known. ``observed`` is the update being explained: an algorithm that
        hides part of its result (pruning) predicts only what was left visible.
        """

    def __call__(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Update:
        """What the client sends."""
        return self.send(learner, state, batch, generator=generator).update

    def send(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Sent:
        """What the client sends, with the encoding that only the client knows."""
        if len(batch) == 0:
            raise InvalidCase("The private batch is empty; a client needs at least one example to compute an update.")
        with torch.no_grad(), global_stream(generator):
            encoding = self.encode(learner, state, batch, generator=generator)
            images = encoding.batch.inputs
            masks = torch.get_rng_state()
            statistics = learner.batch_statistics(state, images) if learner.mode == "train" else None
            torch.set_rng_state(masks)  # the run then drops out what the statistics saw dropped
            params = self.run(learner, state, encoding.batch, generator=generator)
        return Sent(Update(tree.map_tensors(Tensor.detach, params), statistics), encoding)

    def encode(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Encoding:
        """What the client trains on in place of its private batch."""
        del learner, state, generator
        return Encoding(batch)

    @abstractmethod
    def run(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> ParamTree:
        """The client's computation on what it trains on, with its randomness."""


class PlainUpdate(LocalUpdate):
    """A client without randomness: what the attacker predicts is what the client computes."""

    @abstractmethod
    def compute(self, learner: Learner, state: ModelState, batch: Batch) -> ParamTree: ...

    def expected(self, learner: Learner, state: ModelState, batch: Batch, *, observed: ParamTree) -> ParamTree:
        del observed
        return self.compute(learner, state, batch)

    def run(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> ParamTree:
        del generator
        return self.compute(learner, state, batch)


@dataclass(frozen=True)
class FedSGD(PlainUpdate):
    """One gradient of the mean loss over the whole batch [McMahan et al., 2017]."""

    def compute(self, learner: Learner, state: ModelState, batch: Batch) -> ParamTree:
        return learner.gradient(state, batch)


class LocalSteps(PlainUpdate):
    """Plain SGD over parts of what the client trains on; sends parameters before minus after."""

    learning_rate: float

    @abstractmethod
    def batches(self, num_examples: int) -> list[slice]:
        """The examples of each local step, in order."""

    def compute(self, learner: Learner, state: ModelState, batch: Batch) -> ParamTree:
        params: ParamTree = state.params
        for rows in self.batches(len(batch)):
            gradient = learner.gradient(replace(state, params=params), batch[rows])
            params = tree.add(params, gradient, scale=-self.learning_rate)
        return tree.sub(state.params, params)


@dataclass(frozen=True)
class FedAvg(LocalSteps):
    """``epochs`` passes of plain SGD over mini-batches in the given order; sends parameters before minus after.

    [McMahan et al., 2017; Geiping et al., 2020, Eq. 5] With ``shuffle`` the client draws a new order for each epoch. No
    attacker sees that order; what it expects is then an approximation, the given order in every epoch.
    """

    epochs: int = 1
    batch_size: int = 8
    learning_rate: float = 0.01
    shuffle: bool = False

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or not 0 <= self.learning_rate < float("inf"):
            raise InvalidCase(
                f"FedAvg needs epochs >= 1, batch_size >= 1 and a finite learning_rate >= 0, got {self}; correct it."
            )

    def batches(self, num_examples: int) -> list[slice]:
        """The examples of each local step, in order.

        >>> FedAvg(epochs=1, batch_size=2).batches(3)
        [slice(0, 2, None), slice(2, 3, None)]
        """
        starts = range(0, num_examples, self.batch_size)
        return [slice(start, min(start + self.batch_size, num_examples)) for start in starts] * self.epochs

    def run(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> ParamTree:
        if not self.shuffle:
            return self.compute(learner, state, batch)
        epoch, params = replace(self, epochs=1, shuffle=False), state.params
        for _ in range(self.epochs):
            order = torch.randperm(len(batch), generator=generator).to(batch.labels.device)
            moved = epoch.compute(learner, replace(state, params=params), batch[order])
            params = tree.sub(params, moved)
        return tree.sub(state.params, params)


class Departure(Enum):
    """How what is sent departs from what an informed attacker anticipates: it decides which distance is right."""

    NONE = "none"
    LENGTH = "length"
    """The direction is as anticipated."""
    GAUSSIAN = "gaussian"
    """Independent Gaussian noise on every entry."""
    LAPLACE = "laplace"
    """Independent Laplace noise on every entry."""


Defence = Callable[[LocalUpdate], LocalUpdate]
"""Maps a local update to a safer one; a frozen dataclass whose fields are its configuration, or any function."""


class UpdateTransform(ABC):
    """A defence around the client's computation: on the finished update, and on the batch where it encodes that."""

    departure: ClassVar[Departure] = Departure.NONE
    mixes: ClassVar[bool] = False
    """Whether the client trains on mixtures of its images."""
    flips_signs: ClassVar[bool] = False
    """Whether it also reflects their pixels at random."""

    def encode(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Encoding:
        """What the client makes of its batch before it computes anything."""
        del learner, state, generator
        return Encoding(batch)

    def transform(self, params: ParamTree, *, generator: Generator) -> ParamTree:
        """What the client does to its update before it leaves; nothing, for a defence that acts on the batch."""
        del generator
        return params

    def apply(
        self, params: ParamTree, *, learner: Learner, state: ModelState, batch: Batch, generator: Generator
    ) -> ParamTree:
        """The same, for a defence that looks at what the client trained on; most need the update alone."""
        del learner, state, batch
        return self.transform(params, generator=generator)

    @abstractmethod
    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        """What an attacker who knows the defence expects of it; differentiable, without randomness."""

    def distorted(self, learner: Learner, state: ModelState, probe: Tensor) -> tuple[str, ...]:
        """The tensors of the update that the defence is there to spoil; an attack may leave them out."""
        del learner, state, probe
        return ()

    def __call__(self, local_update: LocalUpdate) -> LocalUpdate:
        return Transformed(local_update, self)


@dataclass(frozen=True)
class Wrapped(LocalUpdate):
    """A local update around another; what the inner one trains on, it trains on."""

    inner: LocalUpdate

    @property
    def departure(self) -> Departure:
        return Departure.NONE

    def encode(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Encoding:
        return self.inner.encode(learner, state, batch, generator=generator)


@dataclass(frozen=True)
class Transformed(Wrapped):
    """A local update whose batch and result pass through a transform."""

    transform: UpdateTransform

    @property
    def departure(self) -> Departure:
        return self.transform.departure

    def expected(self, learner: Learner, state: ModelState, batch: Batch, *, observed: ParamTree) -> ParamTree:
        inner = self.inner.expected(learner, state, batch, observed=observed)
        return self.transform.anticipate(inner, observed=observed)

    def encode(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Encoding:
        first = self.inner.encode(learner, state, batch, generator=generator)
        return first.then(self.transform.encode(learner, state, first.batch, generator=generator))

    def run(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> ParamTree:
        inner = self.inner.run(learner, state, batch, generator=generator)
        return self.transform.apply(inner, learner=learner, state=state, batch=batch, generator=generator)
