"""What an attack is: a callable from an observation to a reconstruction. No argument could carry the truth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.errors import InvalidFile, InvalidUpdate
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import Outcome, ParamTree, Reconstruction

Snapshot = Mapping[str, Tensor]
"""All that an attack under way needs to go on, as named tensors."""


class Attack(ABC):
    """Subclasses are frozen dataclasses whose fields are their configuration."""

    @abstractmethod
    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction: ...


class LabelAttack(Attack):
    """Restores the labels of a batch and no inputs; one label per private example."""

    @abstractmethod
    def restore(self, observation: UpdateObservation, *, generator: Generator) -> Tensor: ...

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        del progress
        labels = self.restore(observation, generator=generator)
        return Reconstruction(inputs=None, labels=labels, outcome=Outcome.SOLVED)


class SteppedAttack(Attack):
    """An attack that can be stepped, kept and continued."""

    @abstractmethod
    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Stepper:
        """The attack at its start, to be stepped, interrupted and resumed by whoever holds it."""

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        return self.search([observation], generator=generator).run(progress)[0]


class Stepper(ABC):
    """A stepped attack under way; ``outcome`` is None until it ends."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many steps are complete."""

    @property
    @abstractmethod
    def outcome(self) -> Outcome | None: ...

    @abstractmethod
    def step(self) -> Tick: ...

    @abstractmethod
    def results(self) -> list[Reconstruction]:
        """One reconstruction per observation."""

    @abstractmethod
    def snapshot(self) -> Snapshot: ...

    @abstractmethod
    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot; one that is not of this very attack is refused with `InvalidFile`."""

    def run(self, progress: Progress = silent) -> list[Reconstruction]:
        while self.outcome is None:
            progress(self.step())
        return self.results()


class StepperAround(Stepper, ABC):
    """Another attack under way; subclasses make something else of its results."""

    def __init__(self, inner: Stepper) -> None:
        self.inner = inner

    @property
    def steps(self) -> int:
        return self.inner.steps

    @property
    def outcome(self) -> Outcome | None:
        return self.inner.outcome

    def step(self) -> Tick:
        return self.inner.step()

    def snapshot(self) -> Snapshot:
        return self.inner.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        self.inner.restore(snapshot)


class Answered(Stepper):
    """An attack that has its answers, one per observation, before the first step."""

    def __init__(self, found: Sequence[Reconstruction]) -> None:
        self.found = list(found)
        self.notes: dict[str, str | int | float] = {}

    @property
    def steps(self) -> int:
        return 0

    @property
    def outcome(self) -> Outcome:
        return self.found[0].outcome

    def step(self) -> Tick:
        return Tick(0, 1.0)

    def results(self) -> list[Reconstruction]:
        return [replace(one, facts={"steps": 0, **one.facts, **self.notes}) for one in self.found]

    def snapshot(self) -> Snapshot:
        return {}

    def restore(self, snapshot: Snapshot) -> None:
        if snapshot:
            raise InvalidFile("The snapshot belongs to another attack; delete it and start again.")


def finite_update(observation: UpdateObservation) -> ParamTree:
    """The observed update; nothing can be read from one that diverged."""
    if not tree.is_finite(observation.update.params):
        raise InvalidUpdate("The update holds NaN or infinite values; record it again from a stable training step.")
    return observation.update.params
