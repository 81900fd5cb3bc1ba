"""What an audit says of each defence beside its findings: the most that any attacker could have found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leakgauge.audit.grid import Round
from leakgauge.audit.result import RECORDED
from leakgauge.bounds import Bound, bound_of, error_bound, no_bound
from leakgauge.defences import Defence
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.protocol.round import Federation
from leakgauge.protocol.threat_model import BatchNormAccess, ThreatModel
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace

USUAL_CROWD = 99
"""The crowd that a bound is stated for where an audit has none to identify in."""

_STATISTICS = "the exact statistics of the private batch are given beside the update, without noise"


def describe_bounds(
    federation: Federation, defences: Mapping[str, Defence], rounds: Sequence[Round], threat_model: ThreatModel
) -> dict[str, Any]:
    """By defence, for the description of an audit; the crowd and the batch are the smallest and largest it has."""
    crowds = [0 if one.distractors is None else len(one.distractors) for one in rounds]
    crowd, guesses = min(crowds) or USUAL_CROWD, max(len(one.truth) for one in rounds)
    if discloses_statistics(federation.learner, threat_model):
        return {name: no_bound(_STATISTICS, crowd=crowd, guesses=guesses).to_dict() for name in defences}
    found = {}
    for name, defence in defences.items():
        client = defence(federation.local_update)
        bound = bound_of(client, crowd=crowd, guesses=guesses)
        found[name] = (
            bound if bound.at_most is not None else _with_error(bound, client, federation, rounds[0])
        ).to_dict()
    return found


def describe_recorded_bounds(seen: Sequence[UpdateObservation], crowd: int) -> dict[str, Any]:
    """Of recorded rounds, by what their clients are declared to be; nothing where that is not said or not the same."""
    clients = [one.local_update for one in seen]
    if clients[0] is None or any(client != clients[0] for client in clients):
        return {}
    guesses = max(one.num_examples or 1 for one in seen)
    if any(one.batch_norm.statistics is not None for one in seen):
        return {RECORDED: no_bound(_STATISTICS, crowd=crowd, guesses=guesses).to_dict()}
    return {RECORDED: bound_of(clients[0], crowd=crowd, guesses=guesses).to_dict()}


def discloses_statistics(learner: Learner, threat_model: ThreatModel) -> bool:
    """Whether BatchNorm's statistics leave the client as they are."""
    exact = threat_model.batch_norm is BatchNormAccess.EXACT
    return exact and learner.mode == "train" and bool(learner.batch_norm_layers())


def _with_error(bound: Bound, client: LocalUpdate, federation: Federation, one: Round) -> Bound:
    """What noise without a clip says of the error, on the first batch, the crowd being what inputs look like."""
    images = isinstance(federation.space or ImageSpace.of(one.truth.inputs), ImageSpace)
    references = one.distractors if one.crowd is None else one.crowd
    if not images or references is None or len(references) < 2:
        return bound  # a row has no unit that its columns share
    try:
        error = error_bound(
            client, federation.learner, federation.state, one.truth, references, generator=seeded(0, "probes")
        )
    except (NotImplementedError, RuntimeError):  # a model through which torch does not differentiate forward
        return replace(bound, words=f"{bound.words} How near an attacker comes on average was not measured.")
    return bound if error is None else bound.with_error(error)
