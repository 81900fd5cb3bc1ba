"""What a reading is: a recorded round as it stands if one thing was otherwise than its file says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import FedAvg, FedSGD, LocalUpdate
from leakgauge.protocol.optimisers import OPTIMISERS
from leakgauge.protocol.recording import RecordedRound
from leakgauge.types import ModelState, ParamTree

Options = tuple[tuple[str, str], ...]
"""What a user would type: options and their values."""


@dataclass(frozen=True, eq=False)
class RoundReading:
    """One way to read a round. ``kinds`` are what it changes, () = as declared. Where the private examples are what is
    otherwise, ``truth`` is what was done to their inputs, and ``order`` the one they came in."""

    recorded: RecordedRound
    kinds: tuple[str, ...] = ()
    words: str = "as declared"
    options: Options = ()
    truth: Callable[[Tensor], Tensor] | None = None
    order: tuple[int, ...] | None = None

    def otherwise(self, kind: str, words: str, options: Options = (), **changes: Any) -> RoundReading:
        """This reading with one thing more that is otherwise; what is typed twice counts as typed last."""
        kept = dict(self.options) | dict(options)
        truth, order = changes.pop("truth", self.truth), changes.pop("order", self.order)
        return RoundReading(
            replace(self.recorded, **changes),
            (*self.kinds, kind),
            words if not self.kinds else f"{self.words}; {words}",
            tuple(kept.items()),
            truth,
            order,
        )


@dataclass(frozen=True)
class Seen:
    """What a rule for readings may look at: the reading it starts from, the round under it, and the update that its
    client is expected to send for the best inputs known so far, None before the first trial."""

    reading: RoundReading
    learner: Learner
    state: ModelState
    observed: ParamTree
    client: LocalUpdate | None
    num_examples: int | None
    outputs: int
    expected: ParamTree | None = None

    @property
    def recorded(self) -> RecordedRound:
        return self.reading.recorded

    def with_client(self, kind: str, words: str, client: FedAvg) -> RoundReading:
        """The reading with another local algorithm."""
        text = spell_client(client)
        return self.reading.otherwise(kind, words, (("--local-update", text),), local_update=text)

    def steps(self, **changes: Any) -> FedAvg:
        """The declared client as one of local steps, with some of its settings changed."""
        if isinstance(self.client, FedAvg):
            return replace(self.client, **changes)
        plain = FedAvg(epochs=1, batch_size=self.num_examples or 1, learning_rate=1.0)
        return replace(plain, **changes)


ReadingRule = Callable[[Seen], Iterator[RoundReading]]
"""The readings of one kind that are open to a round."""


def spell_client(client: FedAvg | FedSGD) -> str:
    """The words that build a client, in the grammar of the catalogue; defaults are left out.

    >>> spell_client(FedAvg(2, 1, 0.5))
    'fedavg:epochs=2,batch_size=1,learning_rate=0.5'
    """
    if isinstance(client, FedSGD):
        return "fedsgd"
    words = [f"epochs={client.epochs}", f"batch_size={client.batch_size}", f"learning_rate={client.learning_rate:.6g}"]
    name = next(name for name, kind in OPTIMISERS.items() if type(client.optimiser) is kind)
    words += [f"optimiser={name}"] * (name != "sgd")
    words += _changed(client.optimiser)
    usual = FedAvg()
    names = ("shuffle", "proximal", "clip_norm", "clip_value", "accumulate")
    words += [f"{one}={getattr(client, one)!r}" for one in names if getattr(client, one) != getattr(usual, one)]
    return "fedavg:" + ",".join(words)


def _changed(part: Any) -> list[str]:
    """The settings of a dataclass that are not the usual ones."""
    values = ((field, getattr(part, field.name)) for field in fields(part))
    return [
        f"{field.name}={value:.6g}" if isinstance(value, float) else f"{field.name}={value!r}"
        for field, value in values
        if value != field.default
    ]
