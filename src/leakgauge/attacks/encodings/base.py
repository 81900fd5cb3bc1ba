"""What an attack on encodings is: a callable from what was published to a reconstruction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Generator

from leakgauge.progress import Progress, silent
from leakgauge.protocol.encoded_set import EncodingObservation
from leakgauge.types import Reconstruction


class EncodingAttack(ABC):
    """Frozen dataclasses whose fields are their configuration; what they return carries a `Decoding`.

    ``by_encoding``: there is one image for each encoding, of all its private images together; else one for each
    private image, from many encodings.
    """

    by_encoding: ClassVar[bool] = False

    @property
    def alignment(self) -> str:
        """How images are thought to enter encodings, for the ledger."""
        return "assumed: images enter encodings uncropped and unmirrored"

    @abstractmethod
    def __call__(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction: ...
