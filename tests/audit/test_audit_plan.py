from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from audit_support import *  # noqa: F403
from torch import nn

from leakgauge.attacks.analytic import LinearLayer
from leakgauge.attacks.budget import Budget
from leakgauge.audit.case import Case
from leakgauge.audit.draws import draw_victims
from leakgauge.audit.execute import PreparedAudit, execute
from leakgauge.audit.plan import AuditPlan, OwnClient, plan_of, prepare
from leakgauge.audit.sources import SimulatedUpdate
from leakgauge.config import build_attack, from_mapping
from leakgauge.data import Photos
from leakgauge.defences import Clipping
from leakgauge.errors import InvalidCase
from leakgauge.protocol import THREAT_MODELS, FedSGD
from leakgauge.types import Batch

SMALL = AuditPlan(
    dataset="digits",
    model="mlp:hidden=(8,)",
    train_steps=1,
    batch_size=2,
    rounds=2,
    defences=("none", "clipping:max_norm=1"),
    attacks=("linear_layer",),
    distractors=20,
)


@pytest.fixture(scope="module")
def prepared() -> PreparedAudit:
    return prepare(SMALL)


def private(case: Case) -> torch.Tensor:
    assert isinstance(case.source, SimulatedUpdate)
    return case.source.client.batch.inputs


def overlap(left: torch.Tensor, right: torch.Tensor) -> int:
    return sum(bool((image == right).flatten(1).all(1).any()) for image in left)


def test_a_plan_becomes_every_round_under_every_defence_and_attack_with_its_nulls(prepared: PreparedAudit) -> None:
    assert [(case.defence, case.round, case.null) for case in prepared.cases] == [
        (defence, number, null)
        for defence in ("none", "clipping:max_norm=1")
        for number in (0, 1)
        for null in (0, 1, 2)  # three over both rounds, and as many in each
    ]
    assert all(case.truth is not None and len(case.truth) == 2 for case in prepared.cases)
    assert len({case.key for case in prepared.cases}) == 12


@pytest.mark.parametrize(("rounds", "nulls", "in_each"), [(1, 3, 3), (3, 3, 1), (4, 3, 1), (1, 1, 1), (2, 0, 0)])
def test_there_are_at_least_so_many_nulls_over_all_rounds(rounds: int, nulls: int, in_each: int) -> None:
    cases = prepare(replace(SMALL, rounds=rounds, nulls=nulls, defences=("none",), train_steps=0)).cases
    assert [case.null for case in cases] == list(range(in_each + 1)) * rounds


def test_where_no_client_is_undefended_its_nulls_are_the_control_and_make_no_row() -> None:
    plan = replace(SMALL, rounds=1, defences=("clipping:max_norm=1",))
    prepared = prepare(plan)
    control, audited = prepared.cases[:3], prepared.cases[3:]
    assert [(case.defence, case.null) for case in control] == [("none", 1), ("none", 2), ("none", 3)]
    assert [(case.defence, case.null) for case in audited] == [("clipping:max_norm=1", null) for null in range(4)]
    both = prepare(replace(plan, defences=("none", "clipping:max_norm=1")))
    assert [case.key for case in control] == [case.key for case in both.cases[1:4]]
    assert [row.defence for row in execute(prepared, None).rows] == ["clipping:max_norm=1"]


def test_the_update_of_a_null_is_of_its_decoy(prepared: PreparedAudit) -> None:
    for case in prepared.cases:
        assert (case.decoy is None) == (case.null == 0)
        assert case.decoy is None or torch.equal(private(case), case.decoy.inputs)


def test_no_image_is_attacked_twice_nor_is_its_own_decoy_or_distractor(prepared: PreparedAudit) -> None:
    first, *nulls, second = (prepared.cases[number] for number in (0, 1, 2, 4, 5, 3))
    assert overlap(private(first), private(second)) == 0
    for null in nulls:
        assert null.crowd is not None
        assert null.distractors is not None
        assert torch.equal(null.distractors, null.crowd[:20])
        for real in (first, second):
            assert overlap(private(real), private(null)) == 0
            assert overlap(private(real), null.crowd) == 0
        assert overlap(private(null), null.crowd) == 0
        assert sum(overlap(private(null), private(other)) for other in nulls) == 2  # with itself


def test_the_crowd_is_as_large_as_the_tests_need(prepared: PreparedAudit) -> None:
    # Three statistics of four images under one attack: 3 * 4 / (m + 1) must reach 5 %.
    assert all(case.crowd is not None and len(case.crowd) == 239 for case in prepared.cases)
    assert prepared.description["crowd"] == "239 other images of digits"


def test_every_defence_meets_the_same_victims(prepared: PreparedAudit) -> None:
    for bare, defended in zip(prepared.cases[:6], prepared.cases[6:], strict=True):
        assert torch.equal(private(bare), private(defended))


def test_the_description_is_the_plan_and_what_came_of_it(prepared: PreparedAudit) -> None:
    stored = json.loads(json.dumps(prepared.description))
    assert from_mapping(AuditPlan, plan_of(stored), source="plan") == SMALL
    assert set(stored) - set(plan_of(stored)) == {"version", "accuracy", "victims", "class_names", "crowd", "bounds"}
    assert 0 <= stored["accuracy"] <= 1
    assert [len(chosen) for chosen in stored["victims"]] == [2, 2]


def test_the_highlights_of_a_dataset_are_attacked_first() -> None:
    plan = replace(SMALL, dataset="photos:size=8", batch_size=4, rounds=2)
    dataset = Photos(size=8)()
    first, second = draw_victims(dataset, batch_size=plan.batch_size, rounds=plan.rounds, seed=plan.seed)
    assert (*first.tolist(), *second.tolist())[: len(dataset.highlights)] == dataset.highlights
    assert len({*first.tolist(), *second.tolist()}) == 8


def test_another_seed_draws_other_victims_and_another_model() -> None:
    one, same, other = (prepare(replace(SMALL, rounds=1, seed=seed)) for seed in (1, 1, 2))
    assert [case.key for case in one.cases] == [case.key for case in same.cases]
    assert one.description["victims"] != other.description["victims"]

    def weight(prepared: PreparedAudit) -> torch.Tensor:
        source = prepared.cases[0].source
        assert isinstance(source, SimulatedUpdate)
        return next(iter(source.client.federation.state.params.values()))

    assert torch.equal(weight(one), weight(same))
    assert not torch.equal(weight(one), weight(other))


def test_steps_replace_the_steps_of_each_attack_that_has_some() -> None:
    assert build_attack("quasi_newton", Budget(steps=7)).budget == Budget(steps=7)
    assert build_attack("quasi_newton:steps=5", None).budget == Budget(steps=5)
    assert build_attack("linear_layer", Budget(steps=7)) == build_attack("linear_layer", None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size >= 1.*got 0"),
        ({"rounds": 0}, "rounds >= 1"),
        ({"distractors": -1}, "distractors >= 0"),
        ({"nulls": -1}, "nulls >= 0"),
        ({"mode": "sleep"}, "no mode 'sleep'"),
        ({"steps": 0}, "steps >= 1"),
        ({"train_steps": -1}, "train_steps >= 0"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCase, match=message) as caught:
        replace(SMALL, **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 400}, "need 800 private images.*lower batch_size or rounds"),
        ({"attacks": ("quasi_newton:steps=0",)}, "steps >= 1"),
        ({"attacks": ()}, "at least one"),
        ({"model": "compackt:width=8"}, "did you mean 'compact'"),
        ({"model": "mlp:hiden=(8,)"}, "did you mean 'hidden'"),
        ({"model": "nowhere_at_all:build"}, "cannot be imported.*nowhere_at_all"),
        ({"local_update": "fedavgg"}, "did you mean 'fedavg'"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCase, match=message):
        prepare(replace(SMALL, **changes))


def test_a_plan_survives_json_in_full() -> None:
    everything = replace(
        SMALL, data_root="/data", state="w.safetensors", steps=5, weights="lpips", mode="train", seed=9
    )
    stored = json.loads(json.dumps(asdict(everything)))
    assert from_mapping(AuditPlan, stored, source="plan") == everything


def test_parts_from_python_make_the_cases_of_the_words_that_name_them() -> None:
    words = replace(SMALL, rounds=1, threat_model="unaware", steps=3)
    parts = replace(
        words, local_update=FedSGD(), threat_model=THREAT_MODELS["unaware"], steps=None, budget=Budget(steps=3)
    )
    said, made = prepare(words), prepare(parts)
    assert [case.key for case in made.cases] == [case.key for case in said.cases]
    assert made.description["threat_model"] == "unaware"
    json.dumps(made.description)


def test_an_own_client_is_a_plan_like_any_other() -> None:
    batch, module = Batch(torch.rand(2, 1, 4, 4), torch.tensor([0, 1])), nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    own = OwnClient(module, batch)
    prepared = prepare(AuditPlan(own=own, attacks=(LinearLayer(),), defences=(Clipping(1.0), "none"), distractors=3))
    assert [case.defence for case in prepared.cases] == ["clipping:max_norm=1.0"] * 4 + ["none"] * 4
    assert {case.attack_name for case in prepared.cases} == {repr(LinearLayer())}
    assert all(case.truth is batch for case in prepared.cases)
    assert "dataset" not in prepared.description
