"""What an attack on encodings is: a callable from what was published to a reconstruction; what it needs to be told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Generator, Tensor

from leakgauge.errors import MissingKnowledge
from leakgauge.progress import Progress, silent
from leakgauge.protocol.encoding import EncodingObservation
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


def auxiliary_of(observation: EncodingObservation, who: object) -> Tensor:
    """The attacker's own images, or an error that says who needs them."""
    if observation.auxiliary is None:
        raise MissingKnowledge(f"{who} fits to images of the same kind; give the attacker `auxiliary` images.")
    return observation.auxiliary


def public_of(observation: EncodingObservation, who: object) -> Tensor:
    """The public set, or an error that says who needs it."""
    if observation.public is None:
        raise MissingKnowledge(f"{who} searches the public set; give the attacker `public` images.")
    return observation.public
