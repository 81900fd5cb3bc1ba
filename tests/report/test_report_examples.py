"""Audits of which the verdict is known, made of records as the pipeline leaves them, for all report tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from leakgauge.audit.plan import AuditPlan
from leakgauge.audit.record import Pictures, Record
from leakgauge.audit.result import AuditResult, summarise_records
from leakgauge.audit.verdict import Verdict
from leakgauge.metrics import expected_guess
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.types import Certificate, Outcome

PLAN = {
    "dataset": "photos",
    "model": "compact",
    "batch_size": 8,
    "rounds": 1,
    "defences": ("none", "clipping:max_norm=1"),
    "attacks": ("quasi_newton",),
    "threat_model": "informed",
    "distractors": 99,
    "weights": None,
    "seed": 3,
    "version": "1.2.3",
    "accuracy": 0.75,
    "victims": [[0, 1]],
    "class_names": ["cat", "dog"],
}
HITS = {
    Verdict.CERTIFIED: 8,
    Verdict.LEAKS: 8,
    Verdict.LEAKS_PARTLY: 3,
    Verdict.INCONCLUSIVE: 0,
    Verdict.NO_LEAK_FOUND: 0,
}
"""Of eight private images."""
PROOF = Certificate(2e-7, 1e-5, "nothing else gives this update", 8)
SURE, UNSURE = 1e-9, 0.5
"""The p-value of an example that was identified, and of one that was not."""


def record(defence: str = "none", hits: int | None = 8, size: int = 8, **changes: Any) -> Record:
    """One finished case: ``hits`` of ``size`` private images identified, or none judged."""
    generator = torch.Generator().manual_seed(len(defence) + (hits or 0))
    missing = (math.nan,) * size
    made = Record(
        key="key",
        round=0,
        defence=defence,
        defence_repr="FedSGD()",
        attack="quasi_newton",
        attack_repr="GradientMatching(steps=400)",
        null=0,
        seed=3,
        batch_size=size,
        outcome=Outcome.STEPS_EXHAUSTED,
        reason=Outcome.STEPS_EXHAUSTED.value,
        scores={
            "psnr": tuple(10.0 + place for place in range(size)),
            "ssim": (0.25,) * size,
            "identification": missing if hits is None else (1.0,) * hits + (0.0,) * (size - hits),
            "label_recall": missing,
            "lpips_alex": missing,
            "lpips_vgg": missing,
        },
        chance=math.nan if hits is None else 0.05,
        facts={"route": "DoubleBackward", "steps": 400, "loss": 0.041088},
        ledger=(
            Fact(Subject.LABELS, False, "hidden; the attack has to restore them"),
            Fact(Subject.DEFENCE, True, "known to the attacker", about=defence),
        ),
        seconds=12.5,
        environment={"leakgauge": "1.2.3", "torch": "2.13.0"},
        pictures=Pictures(
            torch.rand(size, 3, 8, 8, generator=torch.Generator().manual_seed(1)),
            torch.rand(size, 3, 8, 8, generator=generator),
            torch.logspace(0, -3, 50),
        ),
    )
    made = replace(made, **changes)
    identified = made.scores.get("identification", ())
    if all(map(math.isnan, identified)):
        return made
    found = {"evidence": tuple(SURE if score == 1 else UNSURE for score in identified), "strangers": 4000}
    return replace(made, **(found | changes))


def labelled(
    true: Sequence[int] | None,
    restored: Sequence[int],
    defence: str = "none",
    attack: str = "label_attack",
    **changes: Any,
) -> Record:
    """One case of an attack on labels, by the counts per class; without the truth it is not scored."""
    scores: dict[str, tuple[float, ...]] = {}
    if true is not None:
        hits = sum(map(min, true, restored))
        scores = {
            "label_recall": (1.0,) * hits + (0.0,) * (sum(true) - hits),
            "label_existence": (sum((a > 0) == (b > 0) for a, b in zip(true, restored)) / len(true),),
            "label_counts": (sum(a == b for a, b in zip(true, restored)) / len(true),),
        }
    counts: dict[str, Any] = {
        "batch_size": sum(restored if true is None else true),
        "true_counts": None if true is None else tuple(true),
        "restored_counts": tuple(restored),
        "label_guess": {} if true is None else expected_guess(true),
    }
    plain = {"outcome": Outcome.SOLVED, "reason": Outcome.SOLVED.value, "pictures": Pictures(), "chance": math.nan}
    return replace(record(defence, attack=attack, scores=scores, **plain, **counts), **changes)


def null_of(case: Record) -> Record:
    scores = {**case.scores, "psnr": (9.0,) * 8, "identification": (0.0,) * 8}
    judged = {"evidence": (UNSURE,) * len(case.evidence), "control": (SURE,) * len(case.evidence), "residual": 0.1}
    pictures = replace(case.pictures, loss_trace=None)
    return replace(case, **judged, null=1, scores=scores, pictures=pictures)


def audit_of(records: Sequence[Record], description: Mapping[str, Any] = PLAN, *, complete: bool = True) -> AuditResult:
    return summarise_records(records, description, complete=complete)


def audit(verdicts: Mapping[str, Verdict], description: Mapping[str, Any] = PLAN) -> AuditResult:
    """An audit in which the defences come out as told."""
    cases = [
        record(
            defence,
            HITS.get(verdict),
            residual=0.9 if verdict is Verdict.INCONCLUSIVE else 0.1,
            certificate=PROOF if verdict is Verdict.CERTIFIED else None,
        )
        for defence, verdict in verdicts.items()
    ]
    return audit_of([*cases, *map(null_of, cases)], description)


@pytest.mark.parametrize("verdict", Verdict)
def test_an_example_gets_the_verdict_that_it_was_made_for(verdict: Verdict) -> None:
    assert audit({"none": verdict})["none"].verdict is verdict


def test_the_description_of_the_examples_is_one_of_a_plan() -> None:
    assert {*AuditPlan.__dataclass_fields__} & {*PLAN} >= {"dataset", "model", "defences", "attacks", "seed"}
