"""Readings of a recorded round, tried: on the truth itself, or on what a short attack finds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

from torch import nn
from torch.nn.functional import one_hot

from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Budget, with_budget
from leakgauge.attacks.recipes import best
from leakgauge.audit.readings import RoundReading, Seen
from leakgauge.audit.recorded import OpenRound
from leakgauge.data import reference_inputs
from leakgauge.errors import LeakGaugeError
from leakgauge.progress import Progress, silent
from leakgauge.protocol.fit import Fit, compare_updates, fit, predict, same_classes
from leakgauge.protocol.local_update import FedAvg, FedSGD
from leakgauge.protocol.losses import Targets, draw_labels
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch, ParamTree

PLAINLY_SMALL = 0.02
"""A residual below which nothing is left to explain."""

_WORSE = 2.0
"""How many times the residual of a simulated client of its declaration an update may have that is explained."""

_HOPELESS = 0.7
"""Misfit of a simulated client from which the attack says nothing about its reading."""


@dataclass(frozen=True, eq=False)
class ReadingTrial:
    """How well a reading explains the update; ``control`` is the same of a simulated client of that very reading."""

    reading: RoundReading
    fit: Fit
    control: Fit | None
    steps: int
    seen: Seen

    @property
    def explains(self) -> bool:
        """Whether no more is left over than a client of this reading leaves."""
        expected = 0.0 if self.control is None or self.hopeless else self.control.residual
        return self.fit.residual <= max(PLAINLY_SMALL, _WORSE * expected)

    @property
    def fits_but_for_length(self) -> bool:
        expected = 0.0 if self.control is None or self.hopeless else self.control.misfit
        return self.fit.scale > 0 and self.fit.misfit <= max(PLAINLY_SMALL, _WORSE * expected)

    @property
    def hopeless(self) -> bool:
        """Whether the attack does not even explain a client that is surely of this reading."""
        return self.control is not None and not self.control.misfit < _HOPELESS


class Prober(ABC):
    """Tries readings of one round."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def open(self, reading: RoundReading) -> OpenRound | None:
        """The round as the reading has it; None where model, labels or update do not admit it."""
        try:
            return OpenRound.of(reading.recorded, self.model)
        except LeakGaugeError:
            return None

    def seen(self, reading: RoundReading, opened: OpenRound, expected: ParamTree | None) -> Seen:
        held = opened.observation
        return Seen(
            reading,
            held.learner,
            held.state,
            held.update.params,
            opened.plain,
            held.num_examples,
            held.learner.width(held.state, held.probe),
            expected,
        )

    @abstractmethod
    def trial(self, reading: RoundReading, steps: int) -> ReadingTrial | None:
        """The reading tried; None where it does not fit the model, or nothing can be computed of it."""


@dataclass(eq=False)
class ByTruth(Prober):
    """On the private inputs themselves: the client's update of them is the observed one, or it is not."""

    model: nn.Module
    truth: Batch

    def trial(self, reading: RoundReading, steps: int) -> ReadingTrial | None:
        del steps
        opened = self.open(reading)
        if opened is None:
            return None
        held = opened.observation
        turn = reading.truth or (lambda inputs: inputs)
        labels, width = self.truth.labels, held.learner.width(held.state, held.probe)
        if held.learner.targets in (Targets.TAGS, Targets.VALUES) and labels.ndim == 1 and width > 1:
            labels = one_hot(labels.long(), width).to(held.state.dtype)
        if held.labels is not None and not same_classes(held.labels, labels):
            labels = held.labels
        order = list(reading.order or range(len(labels)))
        truth = Batch(turn(self.truth.inputs)[order], labels[order])
        expected = predict(replace(held, labels=None), truth.inputs, truth.labels)
        if expected is None:
            return None
        found = compare_updates(expected, held.update.params)
        if not math.isfinite(found.residual):
            return None
        control = self._control(held, truth, expected)
        return ReadingTrial(reading, found, control, 0, self.seen(reading, opened, expected))

    @staticmethod
    def _control(held: UpdateObservation, truth: Batch, expected: ParamTree) -> Fit | None:
        """What chance adds to the update of a client that has some: another draw of it on the same inputs."""
        client = held.local_update
        if client is None or isinstance(client, FedSGD) or (isinstance(client, FedAvg) and not client.shuffle):
            return None
        batch = Batch(held.space.place(truth.inputs, held.state), truth.labels)
        sent = client(held.learner, held.state, batch, generator=seeded(0, "control"))
        return compare_updates(expected, sent.params)


@dataclass(eq=False)
class ByAttack(Prober):
    """On what a short attack finds; controls are simulated once for each client."""

    model: nn.Module
    seed: int
    progress: Progress = silent
    controls: dict[tuple[object, ...], Fit] = field(default_factory=dict)

    def trial(self, reading: RoundReading, steps: int) -> ReadingTrial | None:
        opened = self.open(reading)
        if opened is None or opened.observation.num_examples is None or reading.truth is not None:
            return None
        try:
            found, expected = self._attack(opened.observation, steps)
        except (LeakGaugeError, RuntimeError):
            return None
        if not math.isfinite(found.residual):
            return None
        return ReadingTrial(reading, found, None, steps, self.seen(reading, opened, expected))

    def with_control(self, trial: ReadingTrial) -> ReadingTrial:
        """The trial beside a simulated client of its reading, attacked alike; the clients of some readings are one."""
        opened = self.open(trial.reading)
        if opened is None or opened.plain is None or opened.observation.local_update is None:
            return trial
        held, recorded = opened.observation, trial.reading.recorded
        told = (recorded.local_update, recorded.defence, recorded.mode, recorded.loss, recorded.normalise)
        key = (*told, held.num_examples, held.labels is None, trial.steps)
        if key not in self.controls:
            try:
                self.controls[key] = self._attack(self._simulated(opened), trial.steps)[0]
            except (LeakGaugeError, RuntimeError):
                return trial
        return replace(trial, control=self.controls[key])

    def control(self, opened: OpenRound, attack: Attack) -> float:
        """The residual that an attack leaves of a simulated client of the declaration; NaN = there is none."""
        if opened.observation.local_update is None or opened.observation.num_examples is None:
            return math.nan
        held = self._simulated(opened)
        return fit(held, attack(held, generator=seeded(self.seed, "attack"), progress=self.progress)).residual

    def _simulated(self, opened: OpenRound) -> UpdateObservation:
        held, client = opened.observation, opened.observation.local_update
        assert client is not None
        generator = seeded(self.seed, "control")
        inputs = reference_inputs(held.space, held.num_examples or 1, generator=generator)
        inputs = held.space.place(inputs, held.state)
        labels = held.labels
        if labels is None:
            width = held.learner.width(held.state, held.probe)
            labels = draw_labels(held.learner.loss, len(inputs), width, like=None, generator=generator)
        sent = client(held.learner, held.state, Batch(inputs, labels), generator=generator)
        return replace(held, update=replace(sent, batch_statistics=None))

    def _attack(self, held: UpdateObservation, steps: int) -> tuple[Fit, ParamTree | None]:
        attack: Attack = with_budget(best(), Budget(steps=steps))
        found = attack(held, generator=seeded(self.seed, "attack"), progress=self.progress)
        expected = predict(held, found.inputs, found.labels)
        return Fit() if expected is None else compare_updates(expected, held.update.params), expected
