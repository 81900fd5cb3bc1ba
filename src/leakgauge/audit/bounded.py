"""What an audit says of each defence beside its findings: the most that any attacker could have found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leakgauge.audit.grid import Round
from leakgauge.bounds import bound_of, no_bound
from leakgauge.defences import Defence
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.round import Federation
from leakgauge.protocol.threat_model import BatchNormAccess, ThreatModel

_USUAL_CROWD = 99
"""The crowd that a bound is stated for where an audit has none to identify in."""


def describe_bounds(
    federation: Federation, defences: Mapping[str, Defence], rounds: Sequence[Round], threat_model: ThreatModel
) -> dict[str, Any]:
    """By defence, for the description of an audit; the crowd and the batch are the smallest and largest it has."""
    crowds = [0 if one.distractors is None else len(one.distractors) for one in rounds]
    crowd, guesses = min(crowds) or _USUAL_CROWD, max(len(one.truth) for one in rounds)
    if discloses_statistics(federation.learner, threat_model):
        reason = "the exact statistics of the private batch are given beside the update, without noise"
        return {name: no_bound(reason, crowd=crowd, guesses=guesses).to_dict() for name in defences}
    return {
        name: bound_of(defence(federation.local_update), crowd=crowd, guesses=guesses).to_dict()
        for name, defence in defences.items()
    }


def discloses_statistics(learner: Learner, threat_model: ThreatModel) -> bool:
    """Whether BatchNorm's statistics leave the client as they are."""
    exact = threat_model.batch_norm is BatchNormAccess.EXACT
    return exact and learner.mode == "train" and bool(learner.batch_norm_layers())
