"""A recorded update as cases: the attack on it, and with the truth at hand its scores and its null."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from leakgauge.audit.api import build_attack, chosen_budget
from leakgauge.audit.case import Case, RecordedUpdate, SimulatedUpdate
from leakgauge.audit.grid import standard_metrics
from leakgauge.audit.plan import Prepared
from leakgauge.catalogue import LOCAL_UPDATES
from leakgauge.config import build, build_defence, import_factory
from leakgauge.data import read_batch, reference_images
from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.protocol.recording import RecordedRound, observe, read_round
from leakgauge.protocol.round import Federation
from leakgauge.protocol.threat_model import ThreatModel
from leakgauge.protocol.validation import check_batch
from leakgauge.randomness import seeded
from leakgauge.types import Batch
from leakgauge.version import VERSION

_CROWD = 99


@dataclass(frozen=True)
class Inversion:
    """What to invert and how; ``truth`` is an .npz with the private images, if scores are wanted."""

    file: str
    model: str
    attack: str = "quasi_newton"
    budget: str | None = None
    steps: int | None = None
    seconds: float | None = None
    truth: str | None = None
    weights: str | None = None
    seed: int = 0


def prepare_inversion(inversion: Inversion) -> Prepared:
    """Read and check the round, the model and the truth; nothing is attacked yet."""
    recorded = read_round(Path(inversion.file))
    budget = chosen_budget(inversion.budget, inversion.steps, inversion.seconds)
    attack = build_attack(inversion.attack, budget)
    plain = None if recorded.local_update is None else build(LOCAL_UPDATES, recorded.local_update, kind="local update")
    defended = _defended(plain, recorded.defence)
    observation = observe(recorded, import_factory(inversion.model), local_update=defended)
    threat_model = _threat_model(recorded)
    # Of the client's mode, not of the mode the attacker works in.
    client = observation.learner.in_mode(recorded.mode)
    ledger = threat_model.ledger(client, defence=recorded.defence or "not stated")
    case = Case(
        round=0,
        defence="as recorded",
        attack_name=inversion.attack,
        attack=attack,
        null=False,
        source=RecordedUpdate(observation),
        truth=None,
        distractors=None,
        ledger=ledger,
        seed=inversion.seed,
    )
    cases = [case]
    if inversion.truth is not None:
        truth = _truth(Path(inversion.truth), observation)
        cases = _scored(case, truth, observation, recorded, plain, threat_model)
    description: dict[str, Any] = asdict(inversion) | {"version": VERSION, "seed": inversion.seed}
    return Prepared(cases, standard_metrics(inversion.weights), description)


def _scored(
    case: Case,
    truth: Batch,
    observation: UpdateObservation,
    recorded: RecordedRound,
    plain: LocalUpdate | None,
    threat_model: ThreatModel,
) -> list[Case]:
    """The case scored against the truth, and its null: the same client on unrelated photographs."""
    generator: Generator = seeded(case.seed, "crowd")
    crowd = reference_images(observation.image_shape, _CROWD + len(truth), generator=generator)
    classes = check_batch(observation.learner, observation.state, truth)
    scored = replace(case, truth=truth, distractors=crowd[len(truth) :])
    if plain is None:
        return [scored]  # without the client's algorithm there is no unrelated update to compute
    decoy = Batch(crowd[: len(truth)], torch.randint(classes, (len(truth),), generator=generator))
    federation = Federation(observation.learner.in_mode(recorded.mode), observation.state, plain)
    null = SimulatedUpdate(
        federation, decoy, build_defence(recorded.defence or "none"), threat_model, seed=case.seed, round=0
    )
    return [scored, replace(scored, null=True, source=null)]


def _truth(path: Path, observation: UpdateObservation) -> Batch:
    truth = read_batch(path)
    if tuple(truth.images.shape[1:]) != observation.image_shape:
        raise InvalidCase(
            f"The true images in {path} are {tuple(truth.images.shape[1:])}, the round says {observation.image_shape}; "
            "give the images of this update."
        )
    if observation.num_examples not in (None, len(truth)):
        raise InvalidCase(
            f"There are {len(truth)} true images in {path}, but the update covers {observation.num_examples}; "
            "give the images of this update, and only those."
        )
    return truth


def _defended(plain: LocalUpdate | None, defence: str | None) -> LocalUpdate | None:
    return plain if plain is None or defence is None else build_defence(defence)(plain)


def _threat_model(recorded: RecordedRound) -> ThreatModel:
    """The knowledge that the file itself discloses."""
    return ThreatModel(
        "recorded",
        labels=recorded.labels is not None,
        num_examples=recorded.num_examples is not None or recorded.labels is not None,
        local_hyperparameters=recorded.local_update is not None,
        defence=recorded.defence is not None,
        batch_norm=recorded.batch_norm.access,
        source="what the recorded round holds",
    )
