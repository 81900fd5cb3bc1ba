"""What one case left behind: scores per private example, and everything needed to read and rerun them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from torch import Tensor

from leakgauge.protocol.facts import Fact, Subject
from leakgauge.space import InputSpace, space_from_json, space_to_json
from leakgauge.stored import check_fields
from leakgauge.types import Certificate, Outcome

SCHEMA = 4
"""Version of the fields below as they are written; what an older version wrote is read by `upgrade`."""


@dataclass(frozen=True)
class Pictures:
    """The images of a case, on the CPU; ``None`` where there is none. Reconstructions are paired with originals.

    For encodings also those that stand beside the images, the same ``demasked``, and what the attack says they mix:
    ``coefficients`` of the images, or of the public images ``named``; and the class it gives each image.
    """

    originals: Tensor | None = None
    reconstructions: Tensor | None = None
    loss_trace: Tensor | None = None
    encodings: Tensor | None = None
    demasked: Tensor | None = None
    coefficients: Tensor | None = None
    named: Tensor | None = None
    labels: Tensor | None = None


@dataclass(frozen=True)
class Record:
    """One finished case. ``scores`` hold one number per private example (or per batch) and metric, NaN = not measured;
    ``crowd`` counts the distractors an original was to be picked from, ``strangers`` those that the evidence compares
    with. ``null`` is 0 for what was audited, k for the k-th unrelated update.

    ``evidence`` holds one p-value per private example that what came back is of it, before any correction, () = not
    judged; ``nearest`` says which of the candidates speaks for it, -1 = none; ``control``, on a null, are the same
    p-values for the null's own examples. ``copied`` says which examples something that came back is as good as a copy
    of; ``made`` whether the strangers were made, too few being of the examples' own kind. ``residual`` is how far the
    declared client, run on what came back, stays from what was observed, relative to it, NaN = not computed;
    ``truth_residual`` the same, run on the private examples that a recorded update is said to be of, or on a null's
    own; ``settled`` whether the loss had stopped falling, None = there is none. ``steps`` and ``cpu_seconds`` are
    what the attack spent, ``seconds`` how long it took on the wall. ``certificate`` is the attack's proof that what
    came back is what the client trained on, None = it has none.

    ``true_counts`` and ``restored_counts`` say how many examples each class has and was said to have, None = not known,
    and ``decoy_counts``, on a null, how many its own batch has;
    ``label_guess`` holds the expected scores of labels that are guessed. ``code`` is the fingerprint of the source that
    made the record, empty where that was not yet noted; ``space`` is what the model takes, None for images of the size
    that they have."""

    key: str
    round: int
    defence: str
    defence_repr: str
    attack: str
    attack_repr: str
    null: int
    seed: int
    batch_size: int | None
    outcome: Outcome
    reason: str
    scores: Mapping[str, tuple[float, ...]]
    chance: float
    facts: Mapping[str, str | int | float]
    ledger: tuple[Fact, ...]
    seconds: float
    environment: Mapping[str, str]
    code: str = ""
    crowd: int = 0
    true_counts: tuple[int, ...] | None = None
    restored_counts: tuple[int, ...] | None = None
    decoy_counts: tuple[int, ...] | None = None
    label_guess: Mapping[str, float] = field(default_factory=dict)
    space: InputSpace | None = None
    strangers: int = 0
    evidence: tuple[float, ...] = ()
    nearest: tuple[int, ...] = ()
    control: tuple[float, ...] = ()
    copied: tuple[bool, ...] = ()
    made: bool = False
    residual: float = math.nan
    truth_residual: float = math.nan
    settled: bool | None = None
    steps: int | None = None
    cpu_seconds: float = math.nan
    certificate: Certificate | None = None
    pictures: Pictures = field(default_factory=Pictures, compare=False, repr=False)

    def to_json(self) -> str:
        """Everything but the pictures, which are tensors."""
        values = {name: value for name, value in vars(self).items() if name != "pictures"}
        values |= {"schema": SCHEMA, "outcome": self.outcome.name, "ledger": [_line(fact) for fact in self.ledger]}
        values["space"] = None if self.space is None else space_to_json(self.space)
        values["certificate"] = None if self.certificate is None else asdict(self.certificate)
        values["scores"] = {name: [_plain(score) for score in scores] for name, scores in self.scores.items()}
        for name in ("chance", "residual", "truth_residual", "cpu_seconds"):
            values[name] = _plain(values[name])
        for name in ("facts", "label_guess"):
            values[name] = {key: _plain(value) for key, value in values[name].items()}
        return json.dumps(values, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, pictures: Pictures) -> Record:
        values = upgrade(json.loads(text))
        if values.pop("schema") != SCHEMA:
            raise ValueError("a record of a later version")
        values["outcome"] = Outcome[values["outcome"]]
        values["space"] = None if values.get("space") is None else _space(json.dumps(values["space"]))
        proof = values["certificate"]
        values["certificate"] = None if proof is None else Certificate(**proof)
        values["ledger"] = tuple([_fact(*line) for line in values["ledger"]])
        values["scores"] = {name: _numbers(scores) for name, scores in values["scores"].items()}
        for name in ("chance", "residual", "truth_residual", "cpu_seconds"):
            values[name] = _number(values[name])
        for name in ("evidence", "nearest", "control", "copied"):
            values[name] = tuple(values[name])
        for name in ("facts", "label_guess"):
            if None in values[name].values():
                values[name] = {key: _number(value) for key, value in values[name].items()}
        for name in ("true_counts", "restored_counts", "decoy_counts"):
            values[name] = None if values.get(name) is None else tuple(values[name])
        record = cls(**values, pictures=pictures)
        check_fields(record)
        return record


def check_together(records: Iterable[Record]) -> None:
    """``ValueError`` where records of one round and its nulls are not about the same private examples."""
    asked: dict[tuple[str, int], int] = {}
    for one in records:
        lengths = {len(values) for values in (one.evidence, one.copied) if values}
        if one.evidence:
            lengths.add(asked.setdefault((one.defence, one.round), len(one.evidence)))
        if len(lengths) > 1:
            raise ValueError(f"the record {one.key} is about other examples than its round")


def upgrade(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record as this version writes them, from those of any version before it."""
    if "schema" not in values:
        early: dict[str, Any] = {"true_counts": None, "restored_counts": None, "label_guess": {}, "code": ""}
        values = early | values | {"schema": 2, "ledger": [_first_line(*fact) for fact in values["ledger"]]}
    if values["schema"] == 2:  # which had one null, and neither evidence nor what it rests on
        none: dict[str, Any] = {
            "evidence": [],
            "nearest": [],
            "control": [],
            "copied": [],
            "made": False,
            "strangers": 0,
        }
        none |= {"residual": None, "truth_residual": None, "settled": None, "steps": None, "cpu_seconds": None}
        values = none | values | {"schema": 3, "null": int(values["null"])}
    if values["schema"] == 3:  # when no attack could certify what it found
        values = values | {"schema": 4, "certificate": None}
    return values


def _first_line(name: str, disclosed: bool, detail: str) -> list[object]:
    """A fact as version 1 wrote it: the subject by its shown name, and whom it is about within the detail."""
    subject, about = Subject.INPUT_SPACE if name == "image shape" else Subject(name), ""
    if subject is Subject.MALICIOUS_SERVER:
        detail = detail.removeprefix("MALICIOUS: ")
    elif subject is Subject.DEFENCE:
        about, _, detail = detail.rpartition(": ")
    return _line(Fact(subject, disclosed, detail, about))


def _line(fact: Fact) -> list[object]:
    return [fact.subject.name, fact.disclosed, fact.detail, fact.about]


@lru_cache(4096)
def _fact(name: str, disclosed: bool, detail: str, about: str) -> Fact:
    """Records of one audit have most facts in common, and thousands of records are listed at a time."""
    return Fact(Subject[name], disclosed, detail, about)


@lru_cache(256)
def _space(text: str) -> InputSpace:
    return space_from_json(json.loads(text))


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> Any:
    return math.nan if value is None else value


def _numbers(values: list[Any]) -> tuple[Any, ...]:
    return tuple(map(_number, values)) if None in values else tuple(values)
