"""Dishonest servers in an audit: the client gets what they send, and the ledger says so."""

from __future__ import annotations

import pytest
import torch
from audit_support import *  # noqa: F403

from leakgauge.attacks.analytic import LinearLayer
from leakgauge.attacks.malicious import ConcatenatedInput, FrontLayer, IdentityConvolutions
from leakgauge.audit.api import audit
from leakgauge.audit.grid import Round, grid
from leakgauge.audit.plan import DEFAULT_ATTACKS, AuditPlan, prepare
from leakgauge.audit.run import run_case
from leakgauge.catalogue import ATTACKS
from leakgauge.config import build as build_part
from leakgauge.data import Photos
from leakgauge.defences import NoDefence
from leakgauge.metrics import PSNR
from leakgauge.models import MLP, Compact, ResNet, build
from leakgauge.protocol import THREAT_MODELS, Federation, learner_and_state
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.protocol.learner import Tampering
from leakgauge.report.headline import headline
from leakgauge.types import Outcome

SHAPE = (3, 12, 12)
INFORMED = THREAT_MODELS["informed"]


def cases_of(module, rounds, attacks):
    federation = Federation(*learner_and_state(module))
    options = {"defences": {"none": NoDefence()}, "threat_model": INFORMED, "seed": 0}
    return federation, grid(federation, rounds, attacks=attacks, **options)


@pytest.fixture
def one_round(examples) -> Round:
    return Round(examples(1, SHAPE), (examples(1, SHAPE, seed=1),), examples(9, SHAPE, seed=2).inputs)


def test_client_and_null_get_the_tampered_model_and_honest_attacks_do_not(one_round):
    attacks = {"honest": LinearLayer(), "front": FrontLayer(bins=8), "beside": ConcatenatedInput()}
    federation, cases = cases_of(build(Compact(width=3), SHAPE, 5, seed=0), [one_round], attacks)
    for case in cases:
        sent = case.source.client.federation
        if case.attack_name == "honest":
            assert sent is federation
        else:
            assert sent.learner.tampering == Tampering(case.attack)
    assert {case.null for case in cases if case.attack_name == "front"} == {False, True}
    front = [case.source.client.federation for case in cases if case.attack_name == "front"]
    assert all(one is front[0] for one in front)


def test_the_ledger_of_a_malicious_case_names_its_server_first_and_an_honest_one_has_no_such_line(one_round):
    attacks = {"linear_layer": LinearLayer(), "front_layer": FrontLayer(bins=8)}
    federation, cases = cases_of(build(Compact(width=3), SHAPE, 5, seed=0), [one_round], attacks)
    honest = INFORMED.ledger(federation.learner, defence="none")
    for case in cases:
        if case.attack_name == "linear_layer":
            assert case.ledger == honest
            assert all(fact.subject is not Subject.MALICIOUS_SERVER for fact in case.ledger)
        else:
            said = "front_layer puts a linear layer in front of the model"
            assert case.ledger == (Fact(Subject.MALICIOUS_SERVER, True, said), *honest)


def test_the_truth_comes_back_in_the_real_case_and_not_in_its_null(one_round):
    attacks = {"front": FrontLayer(), "beside": ConcatenatedInput(), "through": IdentityConvolutions()}
    _, cases = cases_of(build(Compact(width=12), SHAPE, 5, seed=0), [one_round], attacks)
    scores = {(case.attack_name, case.null): run_case(case, {"psnr": PSNR()}).scores["psnr"][0] for case in cases}
    assert min(scores["front", False], scores["beside", False]) > 100
    # Of random pixels, three in four cannot be interpolated.
    assert scores["through", False] > scores["through", True] + 1
    assert max(scores["front", True], scores["beside", True]) < 15


def test_a_server_without_a_way_is_reported_with_the_reason_and_stops_nothing(one_round):
    attacks = {"identity_convolutions": IdentityConvolutions(), "front_layer": FrontLayer(bins=8)}
    _, cases = cases_of(build(ResNet(depth=20, base_width=3), SHAPE, 5, seed=0), [one_round], attacks)
    records = [run_case(case, {"psnr": PSNR()}) for case in cases]
    assert [record.outcome for record in records] == [Outcome.NOT_APPLICABLE] * 2 + [Outcome.SOLVED] * 2
    assert "no more than 1 x 1 points" in records[0].reason


def test_every_server_is_in_the_catalogue_and_none_is_a_default():
    servers = {"front_layer", "identity_convolutions", "concatenated_input", "label_flip"}
    assert servers <= ATTACKS.keys()
    assert not servers & {name.partition(":")[0] for name in DEFAULT_ATTACKS}
    assert build_part(ATTACKS, "front_layer:bins=64,spread=1", kind="attack") == FrontLayer(bins=64, spread=1.0)
    assert build_part(ATTACKS, "label_flip:classes=(0,1)", kind="attack").classes == (0, 1)


def test_a_plan_runs_a_malicious_attack_by_name():
    plan = AuditPlan(batch_size=3, attacks=("front_layer",), defences=("none",), train_steps=0, distractors=5)
    real, *nulls = prepare(plan).cases
    assert real.ledger[0].words.startswith("MALICIOUS: front_layer")
    assert all(null.ledger == real.ledger for null in nulls)
    assert len({real.key, *(null.key for null in nulls)}) == 4
    assert max(run_case(real, {"psnr": PSNR()}).scores["psnr"]) > 100


def test_the_report_of_an_audit_says_which_numbers_are_of_a_malicious_server(one_round, tmp_path):
    batch = one_round.truth
    result = audit(
        build(MLP(hidden=(8,)), SHAPE, 5, seed=0),
        batch=(batch.inputs, batch.labels),
        references=torch.cat((one_round.decoys[0].inputs, one_round.distractors)),
        attacks=("linear_layer", "front_layer"),
        defences=("none",),
        distractors=9,
        out=tmp_path / "audit",
    )
    servers = {
        row.attack: [fact.words for fact in row.assumptions if fact.subject is Subject.MALICIOUS_SERVER]
        for row in result.rows
    }
    assert servers == {
        "linear_layer": [],
        "front_layer": ["MALICIOUS: front_layer puts a linear layer in front of the model"],
    }
    page = (tmp_path / "audit" / "index.html").read_text(encoding="utf-8")
    assert page.count("MALICIOUS: front_layer puts a linear layer in front of the model") >= 1
    assert page.count('<ul class="ledger">') == 2


def test_the_headline_says_when_a_finding_rests_on_a_malicious_server() -> None:
    module = build(Compact(width=4), (3, 16, 16), 7, seed=0)
    batch = Photos(size=16)().test[:1]
    result = audit(module, batch=batch, attacks=["front_layer"], defences=["none"])
    assert result["none"].malicious_server is not None
    assert "malicious server" in headline(result)[-1]
    honest = audit(module, batch=batch, attacks=["idlg:steps=2"], defences=["none"])
    assert honest["none"].malicious_server is None
    assert not any("malicious" in sentence for sentence in headline(honest))
