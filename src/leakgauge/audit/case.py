"""One question to be answered: this attack, on this observation, scored against this truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from leakgauge.attacks.base import LabelAttack
from leakgauge.audit.sources import Source
from leakgauge.fingerprint import answering_code, digest, foreign_code
from leakgauge.protocol.facts import Fact
from leakgauge.types import Batch, Reconstruction

FEWEST_KIN = 8
"""Strangers of the private examples' own kind from which on they are judged by these alone."""


@dataclass(frozen=True)
class Case:
    """``null`` is 0 for what is audited; k >= 1 marks the k-th null: the same attack on the k-th unrelated update, or
    on unrelated encodings, scored against the same truth. ``decoy`` is that update's own private batch: what comes
    back, scored against it, is the positive control.

    ``distractors`` are those that the metric of identification picks an original from; ``crowd`` are all strangers that
    the evidence compares with, None = the distractors; the first ``kin`` of them are of the truth's own kind and the
    others made, None = all are. ``paired``: what comes back belongs to the truth row by row, as
    that of one encoding does; ``members`` are the public images that are truly in it.
    """

    round: int
    defence: str
    attack_name: str
    attack: Callable[..., Reconstruction]
    null: int
    source: Source[Any]
    truth: Batch | None
    distractors: Tensor | None
    ledger: tuple[Fact, ...]
    seed: int
    paired: bool = False
    members: Tensor | None = None
    decoy: Batch | None = None
    crowd: Tensor | None = None
    kin: int | None = None

    @property
    def strangers(self) -> Tensor | None:
        """Whom the evidence compares with: m for all victims, or n x m, m for each.

        Enough of the truth's own kind are compared with alone: those made beside them follow another distribution.
        """
        if self.crowd is None:
            return self.distractors
        return self.crowd if self.kin is None or self.only_made else self.crowd[: self.kin]

    @property
    def only_made(self) -> bool:
        """Whether too few strangers are of the truth's own kind for their order to say anything."""
        return self.kin is not None and self.kin < FEWEST_KIN

    @property
    def labels_only(self) -> bool:
        """Whether the attack is after labels alone, so that no private pixel is looked at."""
        return isinstance(self.attack, LabelAttack)

    @property
    def title(self) -> str:
        """What is said of it while it runs."""
        return f"{self.defence}, {self.attack_name}" + (f" (null {self.null})" if self.null else "")

    @cached_property
    def key(self) -> str:
        """Identifies the result: equal keys mean that running again would give the same record.

        It covers the inputs (what is observed, the truth, the crowd, the attack, what it is told, the seed) and the
        code that decides the answer, see `answering_code` and `foreign_code`; neither metrics, which can be completed
        later, nor the machine, which a record names.
        """
        truth = () if self.truth is None else (self.truth.inputs, self.truth.labels)
        own = None if self.decoy is None else self.decoy.inputs
        beside = tuple(one for one in (self.distractors, self.members, own, self.crowd) if one is not None)
        return digest(
            (
                answering_code(),
                foreign_code(self.attack),
                self.source.fingerprint(),
                self.defence,
                repr(self.attack),
                self.attack_name,
                repr(self.ledger),
            ),
            (*truth, *beside),
            (self.round, self.null, self.seed, self.paired),
        )
