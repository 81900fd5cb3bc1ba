"""What an attack is: a callable from an observation to a reconstruction. No argument could carry the truth."""

from __future__ import annotations

from typing import Protocol

from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.errors import InvalidUpdate
from leakgauge.progress import Progress, silent
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import ParamTree, Reconstruction


class Attack(Protocol):
    """Frozen dataclasses whose fields are their configuration."""

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction: ...


class LabelAttack(Protocol):
    """Restores the labels of a batch; one label per private example."""

    def restore(self, observation: UpdateObservation, *, generator: Generator) -> Tensor: ...


def finite_update(observation: UpdateObservation) -> ParamTree:
    """The observed update; nothing can be read from one that diverged."""
    if not tree.is_finite(observation.update.params):
        raise InvalidUpdate("The update holds NaN or infinite values; record it again from a stable training step.")
    return observation.update.params
