"""The client's algorithm as a pure function of the batch, run by the client and, on candidates, by the attacker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import Encoding
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.optimisers import LocalOptimiser, LocalSGD, Memory, StepRule, local_optimiser
from leakgauge.randomness import global_stream
from leakgauge.types import Batch, ModelState, ParamTree, Update

Step = tuple[slice, ...]
"""The examples of each mini-batch whose gradients make one local step."""

MOST_STEPS = 20_000
"""Local steps of one round; what declares more is a mistake, or there to keep an attacker busy."""

_SGD = LocalSGD()


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
        with torch.no_grad(), global_stream(self.stream(generator)):
            encoding = self.encode(learner, state, batch, generator=generator)
            images = encoding.batch.inputs
            masks = torch.get_rng_state()
            statistics = learner.batch_statistics(state, images) if learner.mode == "train" else None
            torch.set_rng_state(masks)  # the run then drops out what the statistics saw dropped
            params = self.run(learner, state, encoding.batch, generator=generator)
        return Sent(Update(tree.map_tensors(Tensor.detach, params), statistics), encoding)

    def stream(self, generator: Generator) -> Generator:
        """What the model's own draws, such as dropout masks, are seeded by."""
        return generator

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
    """Steps over parts of what the client trains on; sends parameters before minus after."""

    @property
    @abstractmethod
    def rule(self) -> StepRule:
        """What one step does with its gradient."""

    @abstractmethod
    def steps(self, num_examples: int) -> list[Step]:
        """The mini-batches of each local step, in order, as an attacker would have them."""

    @property
    def micro_batches(self) -> int:
        """How many mini-batches' gradients a step is the mean of."""
        return 1

    def compute(self, learner: Learner, state: ModelState, batch: Batch) -> ParamTree:
        return self.follow(learner, state, batch, self.steps(len(batch)))

    def follow(
        self, learner: Learner, state: ModelState, batch: Batch, steps: Iterable[Sequence[slice | Tensor]]
    ) -> ParamTree:
        """The update after these steps, each of some mini-batches."""
        rule, params = self.rule, state.params
        memory: Memory = ()
        for index, step in enumerate(steps):
            here = replace(state, params=params)
            gradient = self.gradient(learner, here, [batch[rows] for rows in step])
            params, memory = rule(state.params, params, gradient, memory, index=index)
        return tree.sub(state.params, params)

    def gradient(self, learner: Learner, state: ModelState, parts: list[Batch]) -> ParamTree:
        """The gradient of one step: that of its mini-batch, or several accumulated."""
        total = learner.gradient(state, parts[0])
        for part in parts[1:]:
            total = tree.add(total, learner.gradient(state, part))
        return total if self.micro_batches == 1 else tree.scale(total, 1 / self.micro_batches)


@dataclass(frozen=True, repr=False)
class FedAvg(LocalSteps):
    """``epochs`` passes over mini-batches in the given order; sends parameters before minus after.

    [McMahan et al., 2017; Geiping et al., 2020, Eq. 5] Plain SGD, or another ``optimiser``, whose memory is empty at
    the start of the round and lasts to its end. With ``shuffle`` the client draws a new order for each epoch. No
    attacker sees that order; what it expects is then an approximation, the given order in every epoch. ``accumulate``
    mini-batches make one step with the sum of their gradients over ``accumulate``; what is left at the end of an epoch
    makes a step of its own. ``proximal``, ``clip_norm`` and ``clip_value`` as in `StepRule`.
    """

    epochs: int = 1
    batch_size: int = 8
    learning_rate: float = 0.01
    shuffle: bool = False
    optimiser: LocalOptimiser = _SGD
    proximal: float = 0.0
    clip_norm: float | None = None
    clip_value: float | None = None
    accumulate: int = 1

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or not 0 <= self.learning_rate < float("inf"):
            raise InvalidCase(
                f"FedAvg needs epochs >= 1, batch_size >= 1 and a finite learning_rate >= 0, got {self}; correct it."
            )
        if self.accumulate < 1:
            raise InvalidCase(f"A step accumulates at least one mini-batch, got accumulate={self.accumulate}.")
        _ = self.rule  # its own checks

    def __repr__(self) -> str:
        always = ("epochs", "batch_size", "learning_rate", "shuffle")
        shown = (one for one in fields(self) if one.name in always or getattr(self, one.name) != one.default)
        return f"FedAvg({', '.join(f'{one.name}={getattr(self, one.name)!r}' for one in shown)})"

    @property
    def rule(self) -> StepRule:
        return StepRule(self.optimiser, self.learning_rate, self.proximal, self.clip_norm, self.clip_value)

    @property
    def micro_batches(self) -> int:
        return self.accumulate

    def batches(self, num_examples: int) -> list[slice]:
        """The examples of each mini-batch, in order.

        >>> FedAvg(epochs=1, batch_size=2).batches(3)
        [slice(0, 2, None), slice(2, 3, None)]
        """
        return [rows for step in self.steps(num_examples) for rows in step]

    def steps(self, num_examples: int) -> list[Step]:
        """The mini-batches of each local step, in order.

        >>> FedAvg(epochs=1, batch_size=2, accumulate=2).steps(5)
        [(slice(0, 2, None), slice(2, 4, None)), (slice(4, 5, None),)]
        """
        starts = range(0, num_examples, self.batch_size)
        count = self.epochs * -(-len(starts) // self.accumulate)
        if count > MOST_STEPS:
            raise InvalidCase(
                f"A client of {self.epochs} epochs in batches of {self.batch_size} makes {count} steps on "
                f"{num_examples} examples, which nobody could follow; say at most {MOST_STEPS}."
            )
        parts = [slice(start, min(start + self.batch_size, num_examples)) for start in starts]
        once = [tuple(parts[first : first + self.accumulate]) for first in range(0, len(parts), self.accumulate)]
        return once * self.epochs

    def run(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> ParamTree:
        return self.follow(learner, state, batch, self._drawn_steps(batch, generator))

    def _drawn_steps(self, batch: Batch, generator: Generator) -> Iterator[Sequence[slice | Tensor]]:
        """The client's own steps, an order being drawn when its epoch begins."""
        self.steps(len(batch))  # refuses what has no end
        for _ in range(self.epochs):
            once = replace(self, epochs=1).steps(len(batch))
            if not self.shuffle:
                yield from once
                continue
            order = torch.randperm(len(batch), generator=generator).to(batch.labels.device)
            yield from (tuple(order[rows] for rows in step) for step in once)


def fedavg(
    epochs: int = 1,
    batch_size: int = 8,
    learning_rate: float = 0.01,
    shuffle: bool = False,
    optimiser: str = "sgd",
    momentum: float | None = None,
    dampening: float | None = None,
    nesterov: bool | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    eps: float | None = None,
    weight_decay: float | None = None,
    proximal: float = 0.0,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    accumulate: int = 1,
) -> FedAvg:
    """`FedAvg` in words: ``optimiser`` by its name, its settings beside those of the client; None = as torch has it.

    >>> fedavg(optimiser="sgd", momentum=0.9).optimiser
    LocalSGD(momentum=0.9, dampening=0.0, weight_decay=0.0, nesterov=False)
    """
    settings = {
        "momentum": momentum,
        "dampening": dampening,
        "nesterov": nesterov,
        "beta1": beta1,
        "beta2": beta2,
        "eps": eps,
        "weight_decay": weight_decay,
    }
    chosen = local_optimiser(optimiser, {name: value for name, value in settings.items() if value is not None})
    return FedAvg(epochs, batch_size, learning_rate, shuffle, chosen, proximal, clip_norm, clip_value, accumulate)


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
    lengths: ClassVar[tuple[str, ...]] = ()
    """The options that are in units of the update."""

    def scaled(self, factor: float) -> Self:
        """What does to an update ``factor`` times as long as much as this does to the update."""
        known = {name: factor * getattr(self, name) for name in self.lengths}
        return replace(self, **known) if known else self  # type: ignore[type-var]

    def encode(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Encoding:
        """What the client makes of its batch before it computes anything."""
        del learner, state, generator
        return Encoding(batch)

    def trains(self, learner: Learner, *, generator: Generator) -> Learner:
        """The learner as the client trains with it; another where something is drawn for every gradient."""
        del generator
        return learner

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

    def stream(self, generator: Generator) -> Generator:
        return self.inner.stream(generator)

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
        inner = self.inner.run(self.transform.trains(learner, generator=generator), state, batch, generator=generator)
        return self.transform.apply(inner, learner=learner, state=state, batch=batch, generator=generator)
