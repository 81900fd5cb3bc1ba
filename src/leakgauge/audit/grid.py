"""Which cases an audit consists of: every round under every defence and attack, each with its null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.attacks.base import Attack, LabelAttack
from leakgauge.attacks.malicious import MaliciousAttack
from leakgauge.audit.case import Case
from leakgauge.audit.sources import SimulatedClient, SimulatedUpdate
from leakgauge.audit.sources.simulated import UpdateMemory
from leakgauge.defences import Defence
from leakgauge.errors import InvalidCase
from leakgauge.protocol.round import Federation
from leakgauge.protocol.threat_model import ThreatModel
from leakgauge.protocol.validation import check_batch, check_loss
from leakgauge.space import ImageSpace
from leakgauge.types import Batch


@dataclass(frozen=True)
class Round:
    """The private batch of one update, an unrelated one for the null, and the crowd to pick originals from.

    ``others`` are the client's further images, for a defence that mixes more than the batch has; they are not scored.
    """

    truth: Batch
    decoy: Batch
    distractors: Tensor | None
    others: Batch | None = None

    def batch(self, null: bool) -> Batch:
        """What the client computes its update on."""
        return replace(self.decoy if null else self.truth, others=self.others)


def grid(
    federation: Federation,
    rounds: Sequence[Round],
    *,
    defences: Mapping[str, Defence],
    attacks: Mapping[str, Attack],
    threat_model: ThreatModel,
    seed: int,
    auxiliary: Batch | None = None,
) -> list[Case]:
    """All cases, the undefended first; bad input is found here, before any attack has run."""
    if not rounds or not defences or not attacks:
        raise InvalidCase("An audit needs at least one round, one defence and one attack; name them.")
    for one in rounds:
        check_batch(federation.learner, federation.state, one.truth, federation.space)
        check_loss(federation.learner, federation.state, one.truth)
    space = federation.space or ImageSpace.of(rounds[0].truth.inputs)
    memory = UpdateMemory()

    def clients_of(server: Federation) -> dict[tuple[str, int, bool], SimulatedClient]:
        return {
            (name, number, null): SimulatedClient(server, one.batch(null), defence, seed, number, memory)
            for name, defence in defences.items()
            for number, one in enumerate(rounds)
            for null in (False, True)
        }

    honest = clients_of(federation)
    clients = {
        # What a malicious server sends instead; the real case and its null share it.
        name: clients_of(attack.tamper(federation, space)) if isinstance(attack, MaliciousAttack) else honest
        for name, attack in attacks.items()
    }
    if auxiliary is None:  # an attacker who is to hold images holds none where none are given, and the ledger says so
        threat_model = replace(threat_model, auxiliary=False)
    known = {name: hide_labels(threat_model, attack) for name, attack in attacks.items()}
    return [
        Case(
            round=number,
            defence=defence_name,
            attack_name=attack_name,
            attack=attack,
            null=int(null),
            source=SimulatedUpdate(clients[attack_name][defence_name, number, null], known[attack_name], auxiliary),
            truth=one.truth,
            distractors=one.distractors,
            ledger=known[attack_name].ledger(
                federation.learner,
                defence=defence_name,
                malicious_server=_server_words(attack_name, attack),
                client=defence(federation.local_update),
                space=space,
            ),
            seed=seed,
            decoy=one.decoy if null else None,
        )
        for defence_name, defence in defences.items()
        for attack_name, attack in attacks.items()
        for number, one in enumerate(rounds)
        for null in (False, True)
    ]


def hide_labels(threat_model: ThreatModel, attack: Attack) -> ThreatModel:
    """The threat model, with labels hidden from an attack that is to restore them."""
    return replace(threat_model, labels=False) if isinstance(attack, LabelAttack) else threat_model


def _server_words(name: str, attack: Attack) -> str | None:
    """What the ledger says of the server; named by its attack, because other attacks of the audit may be honest."""
    return f"{name} {attack.server}" if isinstance(attack, MaliciousAttack) else None


def draw_crowd(pool: Batch, truth: Batch, count: int, *, generator: torch.Generator) -> Tensor | None:
    """Distractors from the pool, of the victims' classes while there are enough: a label alone must not identify."""
    if count < 1 or len(pool) == 0:
        return None
    order = torch.randperm(len(pool), generator=generator)
    alike = torch.isin(pool.labels[order], truth.labels) if truth.labels.ndim == 1 else torch.ones(len(pool)).bool()
    chosen = torch.cat((order[alike], order[~alike]))[:count]
    return pool.inputs[chosen]
