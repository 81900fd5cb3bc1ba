"""Images of the same kind in the attacker's hands: only where the threat model says so, said in the ledger, and never
the private ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from leakgauge import THREAT_MODELS, Federation, audit, learner_and_state
from leakgauge.attacks.labels import LLG, ZLG
from leakgauge.audit.grid import Round, grid
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.defences import NoDefence
from leakgauge.errors import InvalidCase
from leakgauge.models import MLP, build
from leakgauge.protocol import simulate_round
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 8, 8)
FACT = Fact(Subject.AUXILIARY, True, "labelled images of the same kind, none of them private")
HOLDS = {name for name, model in THREAT_MODELS.items() if model.auxiliary}


def module(classes: int = 5) -> torch.nn.Module:
    return build(MLP(hidden=(8,)), SHAPE, classes, seed=0)


def test_one_threat_model_gives_the_attacker_images_and_no_labels_of_the_client():
    assert {"auxiliary"} == HOLDS
    assert not THREAT_MODELS["auxiliary"].labels


@pytest.mark.parametrize("name", THREAT_MODELS)
def test_auxiliary_images_reach_only_an_attacker_who_is_said_to_hold_some(name, attacked, examples, reachable):
    strangers = examples(6, SHAPE, seed=1)
    seen = attacked(module(), examples(2, SHAPE), threat_model=name, auxiliary=strangers)
    if name in HOLDS:
        assert seen.auxiliary is strangers
    else:
        assert seen.auxiliary is None
        held = [tensor for tensor in reachable(seen).values() if tensor.shape == strangers.inputs.shape]
        assert not any(torch.equal(tensor, strangers.inputs) for tensor in held)


@pytest.mark.parametrize("name", THREAT_MODELS)
def test_the_ledger_has_a_line_for_them_where_they_are_held(name):
    learner, _ = learner_and_state(module())
    lines = [fact for fact in THREAT_MODELS[name].ledger(learner) if fact.subject is Subject.AUXILIARY]
    assert lines == ([FACT] if name in HOLDS else [])


def test_the_update_does_not_depend_on_them(examples, bits):
    learner, state = learner_and_state(module())
    updates = [
        simulate_round(
            Federation(learner, state),
            examples(2, SHAPE),
            threat_model=THREAT_MODELS["auxiliary"],
            defence=NoDefence(),
            generator=seeded(0),
            auxiliary=strangers,
        ).update
        for strangers in (None, examples(3, SHAPE, seed=1), examples(4, SHAPE, seed=2))
    ]
    assert bits(updates[0]) == bits(updates[1]) == bits(updates[2])


def test_nothing_of_the_private_batch_is_in_what_a_plan_gives_the_attacker():
    plan = AuditPlan(model="mlp", attacks=("llg:source=auxiliary",), defences=("none",), threat_model="auxiliary")
    for case in prepare(plan).cases:
        auxiliary, private = case.source.observe().auxiliary, (case.source.client.batch, case.truth)
        assert len(auxiliary) == 500
        assert FACT in case.ledger
        for image in torch.cat([batch.inputs for batch in private]):
            assert not (auxiliary.inputs == image).flatten(1).all(dim=1).any()


def test_other_images_make_another_case(examples):
    def key(auxiliary: Batch | None, threat_model: str = "auxiliary") -> str:
        learner, state = learner_and_state(module())
        truth, decoy = examples(2, SHAPE), examples(2, SHAPE, seed=1)
        case, _ = grid(
            Federation(learner, state),
            [Round(truth, (decoy,), None)],
            defences={"none": NoDefence()},
            attacks={"zlg": ZLG("auxiliary")},
            threat_model=THREAT_MODELS[threat_model],
            seed=0,
            auxiliary=auxiliary,
        )
        return case.key

    first, second = examples(3, SHAPE, seed=2), examples(3, SHAPE, seed=3)
    assert key(first) == key(Batch(first.inputs.clone(), first.labels.clone()))
    assert len({key(first), key(second), key(Batch(first.inputs, second.labels)), key(None)}) == 4


def test_where_no_images_are_given_the_ledger_does_not_claim_any(examples):
    batch = examples(2, SHAPE)
    result = audit(
        module(), batch=batch, attacks=[LLG("auxiliary")], defences=["none"], threat_model="auxiliary", distractors=1
    )
    (row,) = result.rows
    assert "auxiliary data" not in {fact.name for fact in row.assumptions}
    assert row.reason.startswith("LLG needs `auxiliary`")


def test_a_plan_without_training_images_cannot_give_any(tmp_path: Path):
    labels = np.arange(30, dtype=np.uint8)[:, None] % 10
    pixels = np.random.default_rng(0).integers(0, 256, (30, 3072), np.uint8)
    (tmp_path / "test_batch.bin").write_bytes(np.hstack([labels, pixels]).tobytes())
    plan = AuditPlan(dataset="cifar10", data_root=str(tmp_path), model="mlp", batch_size=2, threat_model="auxiliary")
    with pytest.raises(InvalidCase, match=r"would be training images, but 'cifar10' has none here; add the training"):
        prepare(plan)
