"""What a case is attacked through, whatever kind of thing it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import InputSpace

Observation = TypeVar("Observation")


class Source(ABC, Generic[Observation]):
    """Where an observation comes from. The pipeline asks a source, never the observation, whose type it does not know.

    A source of another kind than an update is a subclass of this, and its attacks take its observation.
    """

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """How large the model under attack is, which decides on threads and processes; 0 if there is none."""

    @abstractmethod
    def observe(self) -> Observation:
        """All that the attack receives; the same at every call."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Equal fingerprints mean equal observations."""

    @abstractmethod
    def num_classes(self) -> int | None:
        """How many classes a label is one of; None where labels are no classes."""

    def space(self) -> InputSpace | None:
        """What the private inputs are; None for images of the size that they have."""
        return None

    @abstractmethod
    def num_examples(self) -> int | None:
        """How many private examples there are, as far as the attacker knows."""

    @abstractmethod
    def description(self) -> str:
        """What a record says of how the observation came about."""


class UpdateSource(Source[UpdateObservation]):
    """An update, wherever it was computed."""

    def num_classes(self) -> int | None:
        seen = self.observe()
        try:
            return seen.learner.num_classes(seen.state, seen.probe)
        except UnsupportedModel:
            return None

    def space(self) -> InputSpace:
        return self.observe().space

    def num_examples(self) -> int | None:
        return self.observe().num_examples

    def description(self) -> str:
        return repr(self.observe().local_update)
