"""Searches for public images: they look at everything but the encodings once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from torch import Generator, Tensor

from leakgauge.progress import Progress, silent
from leakgauge.protocol.encoded_set import EncodingObservation


class Answer(Protocol):
    """Whatever else a search finds, ``indices`` are the public images it names for each encoding, best first."""

    @property
    def indices(self) -> Tensor: ...


Found = TypeVar("Found", bound=Answer, covariant=True)


class PublicImageAttack(ABC, Generic[Found]):
    """Names the public images in the encodings observed; ``prepare``, paid for once, gives what names them in any."""

    @abstractmethod
    def prepare(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Callable[[Tensor], Found]: ...

    def __call__(self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent) -> Found:
        return self.prepare(observation, generator=generator, progress=progress)(observation.encoded.images)
