"""Which cases an audit consists of: each round under each defence and attack, with its nulls, and the control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from leakgauge.attacks.base import Attack, LabelAttack
from leakgauge.attacks.malicious import MaliciousAttack
from leakgauge.audit.case import Case
from leakgauge.audit.result import UNDEFENDED
from leakgauge.audit.sources import SimulatedClient, SimulatedUpdate
from leakgauge.audit.sources.simulated import UpdateMemory
from leakgauge.defences import Defence, NoDefence
from leakgauge.errors import InvalidCase
from leakgauge.protocol.round import Federation
from leakgauge.protocol.threat_model import ThreatModel
from leakgauge.protocol.validation import check_batch, check_loss
from leakgauge.space import ImageSpace
from leakgauge.types import Batch


@dataclass(frozen=True)
class Round:
    """The private batch of one update, an unrelated one for each null, and the crowd to pick originals from.

    ``others`` are the client's further images, for a defence that mixes more than the batch has; they are not scored.
    ``label_decoys`` take the place of ``decoys`` in nulls of attacks on labels, if there are any. ``crowd`` are all
    strangers, of which ``distractors`` are those that the metric of identification picks from; the first ``kin`` are of
    the private examples' own kind, None = all.
    """

    truth: Batch
    decoys: tuple[Batch, ...]
    distractors: Tensor | None
    others: Batch | None = None
    label_decoys: tuple[Batch, ...] = ()
    crowd: Tensor | None = None
    kin: int | None = None

    def batches(self, attack: object) -> tuple[Batch, ...]:
        """What clients compute updates on: the private batch, then that of each null."""
        decoys = self.label_decoys if self.label_decoys and isinstance(attack, LabelAttack) else self.decoys
        return self.truth, *decoys


def grid(
    federation: Federation,
    rounds: Sequence[Round],
    *,
    defences: Mapping[str, Defence],
    attacks: Mapping[str, Attack],
    threat_model: ThreatModel,
    seed: int,
    auxiliary: Batch | None = None,
    control: bool = False,
) -> list[Case]:
    """All cases, the undefended first; bad input is found here, before any attack has run.

    With ``control`` the nulls of the undefended client are among them where it is none of the defences: what an attack
    can find at all shows there.
    """
    if not rounds or not defences or not attacks:
        raise InvalidCase("An audit needs at least one round, one defence and one attack; name them.")
    for one in rounds:
        check_batch(federation.learner, federation.state, one.truth, federation.space)
        check_loss(federation.learner, federation.state, one.truth)
    space = federation.space or ImageSpace.of(rounds[0].truth.inputs)
    if auxiliary is None:  # an attacker who is to hold images holds none where none are given, and the ledger says so
        threat_model = replace(threat_model, auxiliary=False)
    known = {name: hide_labels(threat_model, attack) for name, attack in attacks.items()}
    public = auxiliary.inputs if auxiliary is not None and threat_model.auxiliary else None
    servers = {
        # What a malicious server sends instead; the real case and its nulls share it.
        name: attack.tamper(federation, space, public) if isinstance(attack, MaliciousAttack) else federation
        for name, attack in attacks.items()
    }
    only_control = {UNDEFENDED: NoDefence()} if control and UNDEFENDED not in defences else {}
    clients = _Clients(seed)
    return [
        Case(
            round=number,
            defence=defence_name,
            attack_name=attack_name,
            attack=attack,
            null=null,
            source=SimulatedUpdate(
                clients.get(servers[attack_name], defence_name, defence, number, batch, one.others),
                known[attack_name],
                auxiliary,
            ),
            truth=one.truth,
            decoy=batch if null else None,
            distractors=one.distractors,
            crowd=one.crowd,
            kin=one.kin,
            ledger=known[attack_name].ledger(
                federation.learner,
                defence=defence_name,
                malicious_server=_server_words(attack_name, attack),
                client=defence(federation.local_update),
                space=space,
            ),
            seed=seed,
        )
        for defence_name, defence in (only_control | dict(defences)).items()
        for attack_name, attack in attacks.items()
        for number, one in enumerate(rounds)
        for null, batch in enumerate(one.batches(attack))
        if null or defence_name not in only_control
    ]


class _Clients:
    """The clients of a grid: one for each server, defence and batch, whichever attacks meet its update."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._memory = UpdateMemory()
        self._known: dict[tuple[int, str, int, int], SimulatedClient] = {}

    def get(
        self, server: Federation, name: str, defence: Defence, number: int, batch: Batch, others: Batch | None
    ) -> SimulatedClient:
        # Servers and batches by identity: the grid holds them as long as it holds this.
        key = id(server), name, number, id(batch)
        if key not in self._known:
            private = replace(batch, others=others)
            self._known[key] = SimulatedClient(server, private, defence, self._seed, number, self._memory)
        return self._known[key]


def hide_labels(threat_model: ThreatModel, attack: Attack) -> ThreatModel:
    """The threat model, with labels hidden from an attack that is to restore them."""
    return replace(threat_model, labels=False) if isinstance(attack, LabelAttack) else threat_model


def _server_words(name: str, attack: Attack) -> str | None:
    """What the ledger says of the server; named by its attack, because other attacks of the audit may be honest."""
    return f"{name} {attack.server}" if isinstance(attack, MaliciousAttack) else None
