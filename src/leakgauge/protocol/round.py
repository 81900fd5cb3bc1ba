"""One federated round: the client computes, the threat model decides what the attacker sees of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Generator

from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import Defence, FedSGD, LocalUpdate, Sent
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.protocol.threat_model import BatchNormAccess, BatchNormKnowledge, ThreatModel
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch, ModelState


@dataclass(frozen=True)
class Federation:
    """What server and clients share: the learner, the state of this round, and the agreed local algorithm.

    ``space`` is what the learner takes; None = images, of the size that the batch has.
    """

    learner: Learner
    state: ModelState
    local_update: LocalUpdate = FedSGD()
    space: InputSpace | None = None


def simulate_round(
    federation: Federation,
    truth: Batch,
    *,
    threat_model: ThreatModel,
    defence: Defence,
    generator: Generator,
    auxiliary: Batch | None = None,
) -> UpdateObservation:
    """Run one client on its private batch and return what the threat model lets the server see.

    ``auxiliary`` are images that are not private; they reach an attacker who is assumed to hold such.
    """
    client = defence(federation.local_update)
    sent = client.send(federation.learner, federation.state, truth, generator=generator)
    return disclose(federation, defence, truth, sent, threat_model=threat_model, auxiliary=auxiliary)


def disclose(
    federation: Federation,
    defence: Defence,
    truth: Batch,
    sent: Sent,
    *,
    threat_model: ThreatModel,
    auxiliary: Batch | None = None,
) -> UpdateObservation:
    """What the threat model lets the server see of what a client sent."""
    update, encoding = sent
    mixing = encoding.mixing if threat_model.mixing else None
    client = defence(federation.local_update) if threat_model.defence else federation.local_update
    return UpdateObservation(
        learner=attackers_learner(federation.learner, threat_model.batch_norm),
        state=federation.state,
        update=replace(update, batch_statistics=None),
        space=federation.space or ImageSpace.of(truth.inputs),
        local_update=client if threat_model.local_hyperparameters else None,
        num_examples=len(truth) if threat_model.num_examples else None,
        labels=truth.labels if threat_model.labels else None,
        batch_norm=BatchNormKnowledge(
            threat_model.batch_norm,
            update.batch_statistics if threat_model.batch_norm is BatchNormAccess.EXACT else None,
        ),
        auxiliary=auxiliary if threat_model.auxiliary else None,
        mixing=mixing,
        mixed_labels=encoding.batch.labels if mixing is not None and threat_model.labels else None,
    )


def attackers_learner(learner: Learner, access: BatchNormAccess) -> Learner:
    """The client's learner as the attacker can run it: no secret dropout masks, BatchNorm as far as it is known."""
    proxy = learner.mode == "train" and access is BatchNormAccess.PROXY
    return (learner.in_mode("eval") if proxy else learner).without_dropout()
