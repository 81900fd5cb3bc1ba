"""All that an attack receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from leakgauge.errors import MissingKnowledge
from leakgauge.protocol.encoding import Mixing
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.threat_model import BatchNormKnowledge
from leakgauge.space import InputSpace
from leakgauge.types import Batch, ModelState, Update

T = TypeVar("T")


@dataclass(frozen=True)
class UpdateObservation:
    """One client's update as the server sees it. ``None`` = hidden by the threat model.

    ``learner`` already runs in the mode the attacker works in (see ``BatchNormAccess``), so that an attack needs no
    case distinction.
    """

    learner: Learner
    state: ModelState
    update: Update
    space: InputSpace
    local_update: LocalUpdate | None
    num_examples: int | None
    labels: Tensor | None
    batch_norm: BatchNormKnowledge
    auxiliary: Batch | None = None
    """Labelled images of the same kind that are not the client's."""
    mixing: Mixing | None = None
    """How the client mixed its images, for a defence that does."""
    mixed_labels: Tensor | None = None
    """The class probabilities of the mixtures, where both the labels and the mixing are known."""

    @property
    def probe(self) -> Tensor:
        """Two inputs to run the model on: BatchNorm in train mode refuses one when the map is 1 x 1."""
        return self.space.probe(2, self.state)


def known(value: T | None, name: str, *, needed_by: object) -> T:
    """The value, or an error that names the hidden fact and who needs it."""
    if value is None:
        raise MissingKnowledge(
            f"{type(needed_by).__name__} needs `{name}`, which the threat model hides; "
            "use a threat model that discloses it, or another attack."
        )
    return value
