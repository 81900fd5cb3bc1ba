"""The names that ``import leakgauge`` offers, each from its home; loaded when the first of them is asked for."""

from leakgauge.attacks import labels
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.recipes import best
from leakgauge.audit.api import audit
from leakgauge.audit.explain import RoundExplanation, explain
from leakgauge.audit.result import AuditResult
from leakgauge.audit.verdict import Verdict
from leakgauge.models import NamedInput, Normalised
from leakgauge.protocol import (
    THREAT_MODELS,
    FedAvg,
    Federation,
    FedSGD,
    Learner,
    ThreatModel,
    UpdateObservation,
    learner_and_state,
    simulate_round,
)
from leakgauge.protocol.recording import RecordedRound, observe, read_round, write_round
from leakgauge.risk import ModelCheck, VettedModel, check, vet
from leakgauge.space import Categorical, Continuous, ImageSpace, InputSpace, TableSpace, TokenSpace
from leakgauge.types import Batch, ModelState, Outcome, Reconstruction, Update

__all__ = [
    "THREAT_MODELS",
    "AuditResult",
    "Batch",
    "Budget",
    "Categorical",
    "Continuous",
    "FedAvg",
    "FedSGD",
    "Federation",
    "ImageSpace",
    "InputSpace",
    "Learner",
    "ModelCheck",
    "ModelState",
    "NamedInput",
    "Normalised",
    "Outcome",
    "Reconstruction",
    "RecordedRound",
    "RoundExplanation",
    "TableSpace",
    "ThreatModel",
    "TokenSpace",
    "Update",
    "UpdateObservation",
    "Verdict",
    "VettedModel",
    "audit",
    "best",
    "check",
    "explain",
    "labels",
    "learner_and_state",
    "observe",
    "read_round",
    "simulate_round",
    "vet",
    "write_round",
]
