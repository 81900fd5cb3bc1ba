"""What an attack needs to be told, or an error that says so."""

from __future__ import annotations

from torch import Tensor

from leakgauge.errors import MissingKnowledge
from leakgauge.protocol.encoded_set import EncodingObservation


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
