"""What server and attacker know of the clients, said once: it turns two sets of arrays into a recorded round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flwr.app import Message
from torch import Tensor

from leakgauge.integrations.flower.messages import count_examples, only_arrays, read_arrays
from leakgauge.protocol.learner import Mode
from leakgauge.protocol.recording import RecordedRound
from leakgauge.space import InputSpace
from leakgauge.types import Shape


@dataclass(frozen=True)
class DeclaredClient:
    """How the clients train, in the words of `RecordedRound`; None where an attacker does not know.

    ``space`` is what the model takes, or the shape of an image. ``mode`` left out is read off the running statistics.
    ``names`` are those of ``model.state_dict()``, for apps that send their arrays as a list.
    """

    space: InputSpace | Shape
    local_update: str | None = "fedsgd"
    defence: str | None = "none"
    mode: Mode | None = None
    loss: str | None = None
    normalise: str | None = None
    names: tuple[str, ...] | None = None

    def record(self, sent: Message, reply: Message, labels: Tensor | None = None) -> RecordedRound:
        """The round that a server's message and a client's reply to it make."""
        (_, before), (_, after) = only_arrays(sent), only_arrays(reply)
        known: dict[str, Any] = {} if self.mode is None else {"mode": self.mode}
        return RecordedRound.between(
            read_arrays(before, self.names),
            read_arrays(after, self.names),
            self.space,
            num_examples=count_examples(reply),
            labels=labels,
            local_update=self.local_update,
            defence=self.defence,
            loss=self.loss,
            normalise=self.normalise,
            **known,
        )
