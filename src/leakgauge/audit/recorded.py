"""A recorded round together with its model: what attacks on it become cases of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from leakgauge.audit.case import Case
from leakgauge.audit.sources import RecordedUpdate, SimulatedClient, SimulatedUpdate
from leakgauge.catalogue import LOCAL_UPDATES
from leakgauge.config import build, build_defence
from leakgauge.data import read_batch
from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.protocol.recording import RecordedRound, observe
from leakgauge.protocol.round import Federation
from leakgauge.protocol.threat_model import ThreatModel
from leakgauge.protocol.validation import check_batch
from leakgauge.types import Batch


@dataclass(frozen=True)
class OpenRound:
    """A recorded round that was checked against its model; ``plain`` is the client's algorithm without its defence."""

    recorded: RecordedRound
    observation: UpdateObservation
    plain: LocalUpdate | None

    @classmethod
    def of(cls, recorded: RecordedRound, model: torch.nn.Module) -> OpenRound:
        plain = recorded.local_update
        algorithm = None if plain is None else build(LOCAL_UPDATES, plain, kind="local update")
        defended = _defended(algorithm, recorded.defence)
        return cls(recorded, observe(recorded, model, local_update=defended), algorithm)

    def without_labels(self) -> OpenRound:
        """As an attack on labels sees it, which still learns how many there are."""
        known = replace(self.recorded, labels=None, num_examples=self.observation.num_examples)
        return OpenRound(known, replace(self.observation, labels=None), self.plain)

    @property
    def threat_model(self) -> ThreatModel:
        """The knowledge that the file itself discloses."""
        recorded = self.recorded
        return ThreatModel(
            "recorded",
            labels=recorded.labels is not None,
            num_examples=self.observation.num_examples is not None,
            local_hyperparameters=recorded.local_update is not None,
            defence=recorded.defence is not None,
            batch_norm=recorded.batch_norm.access,
            source="what the recorded round holds",
        )

    def case(self, name: str, attack: Any, *, seed: int, number: int = 0) -> Case:
        """The attack on this round, not scored."""
        # Of the client's mode, not of the mode the attacker works in.
        client = self.observation.learner.in_mode(self.recorded.mode)
        return Case(
            round=number,
            defence="as recorded",
            attack_name=name,
            attack=attack,
            null=False,
            source=RecordedUpdate(self.observation),
            truth=None,
            distractors=None,
            ledger=self.threat_model.ledger(
                client, defence=self.recorded.defence or "not stated", space=self.recorded.space
            ),
            seed=seed,
        )

    def scored(
        self, case: Case, truth: Batch, unrelated: Tensor, distractors: Tensor | None, *, generator: Generator
    ) -> list[Case]:
        """The case scored against the truth, and its null: the same client on unrelated photographs."""
        scored = replace(case, truth=truth, distractors=distractors)
        if self.plain is None:
            return [scored]  # without the client's algorithm there is no unrelated update to compute
        seen, recorded = self.observation, self.recorded
        classes = seen.learner.num_classes(seen.state, seen.probe)
        decoy = Batch(unrelated.to(seen.state.dtype), torch.randint(classes, (len(unrelated),), generator=generator))
        client = SimulatedClient(
            Federation(seen.learner.in_mode(recorded.mode), seen.state, self.plain, seen.space),
            decoy,
            build_defence(recorded.defence or "none"),
            seed=case.seed,
            round=case.round,
        )
        return [scored, replace(scored, null=True, source=SimulatedUpdate(client, self.threat_model))]

    def truth(self, path: Path) -> Batch:
        """The private batch in an .npz, after making sure that it can be the one of this round."""
        truth, seen = read_batch(path), self.observation
        if tuple(truth.inputs.shape[1:]) != seen.space.shape:
            raise InvalidCase(
                f"The true images in {path} are {tuple(truth.inputs.shape[1:])}, the round says {seen.space.shape}; "
                "give the images of this update."
            )
        if seen.num_examples not in (None, len(truth)):
            raise InvalidCase(
                f"There are {len(truth)} true images in {path}, but the update covers {seen.num_examples}; "
                "give the images of this update, and only those."
            )
        check_batch(seen.learner, seen.state, truth, seen.space)
        return truth


def _defended(plain: LocalUpdate | None, defence: str | None) -> LocalUpdate | None:
    return plain if plain is None or defence is None else build_defence(defence)(plain)
