"""Attacks that look at everything but the encodings once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from torch import Generator, Tensor

from leakgauge.progress import Progress, silent
from leakgauge.protocol.encoded_set import EncodingObservation

Found = TypeVar("Found")


class Prepared(ABC, Generic[Found]):
    """Called, it answers for the encodings observed; ``prepare`` gives what answers for any."""

    @abstractmethod
    def prepare(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Callable[[Tensor], Found]: ...

    def __call__(self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent) -> Found:
        return self.prepare(observation, generator=generator, progress=progress)(observation.encoded.images)
