"""A recorded update as cases: the attack on it, and with the truth at hand its scores and its null."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from leakgauge.attacks.base import LabelAttack
from leakgauge.audit.api import build_attack, chosen_budget
from leakgauge.audit.plan import Prepared
from leakgauge.audit.recorded import OpenRound
from leakgauge.catalogue import standard_metrics
from leakgauge.data import reference_inputs
from leakgauge.factories import import_factory
from leakgauge.protocol.recording import read_round
from leakgauge.randomness import seeded
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
    attack = build_attack(inversion.attack, chosen_budget(inversion.budget, inversion.steps, inversion.seconds))
    opened = OpenRound.of(recorded, import_factory(inversion.model))
    if isinstance(attack, LabelAttack):
        opened = opened.without_labels()
    cases = [opened.case(inversion.attack, attack, seed=inversion.seed)]
    if inversion.truth is not None:
        truth = opened.truth(Path(inversion.truth))
        generator = seeded(inversion.seed, "crowd")
        crowd = reference_inputs(opened.observation.space, _CROWD + len(truth), generator=generator)
        unrelated, distractors = crowd[: len(truth)], crowd[len(truth) :]
        cases = opened.scored(cases[0], truth, unrelated, distractors, generator=generator)
    description: dict[str, Any] = asdict(inversion) | {"version": VERSION, "seed": inversion.seed}
    return Prepared(cases, standard_metrics(inversion.weights), description)
