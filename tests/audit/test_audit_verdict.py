from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from audit_support import *  # noqa: F403
from audit_support import MakeRecord

from leakgauge.audit.limits import check_limit
from leakgauge.audit.result import AuditResult, Finding, Measurement, summarise_records
from leakgauge.audit.verdict import Judgement, Reason, Verdict, judge
from leakgauge.catalogue import METRICS, describe_metric
from leakgauge.errors import InvalidCase
from leakgauge.metrics import Summary
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.types import Outcome

NAN = math.nan
NOTHING = Summary(NAN, NAN, NAN, NAN, 0)


def test_no_verdict_calls_an_update_safe() -> None:
    assert not any("safe" in verdict.value for verdict in Verdict)


def row(defence: str = "none", attack: str = "quasi_newton", **means: float) -> Finding:
    measurements = {
        name: Measurement(
            describe_metric(name),
            NOTHING if math.isnan(mean) else Summary(mean, mean, mean, mean, 4),
            NOTHING,
        )
        for name, mean in means.items()
    }
    return Finding(
        defence=defence,
        attack=attack,
        batch_size=4,
        rounds=1,
        victims=4,
        outcome=Outcome.SOLVED,
        reason="",
        measurements=measurements,
        judgement=Judgement(Verdict.LEAKS),
        assumptions=(),
        facts={},
        seconds=0.0,
        records=(),
        nulls=(),
    )


def result(*rows: Finding) -> AuditResult:
    return AuditResult(rows, {"seed": 3})


def test_only_rows_above_the_limit_exceed_it() -> None:
    leaks = result(row(psnr=20.0), row("pruning", psnr=30.0), row("clipping", psnr=25.0))
    assert leaks.exceeding({"psnr": 25.0}) == ["pruning: psnr is 30, the limit is 25 (attack quasi_newton)"]
    assert leaks.exceeding({}) == []
    assert len(leaks.exceeding({"psnr": 0.0})) == 3


def test_for_a_distance_to_leak_more_means_to_be_below_the_limit() -> None:
    near_and_far = result(row(lpips_alex=0.1), row("pruning", lpips_alex=0.6))
    assert near_and_far.exceeding({"lpips_alex": 0.3}) == [
        "none: lpips_alex is 0.1, the limit is 0.3 (attack quasi_newton)"
    ]
    assert near_and_far.exceeding({"lpips_alex": 0.05}) == []
    assert near_and_far.exceeding({"lpips_alex": 0.1}) == []


@pytest.mark.parametrize(
    ("rows", "limits", "message"),
    [
        ((row(psnr=20.0),), {"psnrr": 1.0}, "no metric 'psnrr'.*choose from"),
        ((row(psnr=20.0),), {"identification": 0.5}, "not measured for the defence 'none'"),
        ((row(psnr=20.0, ssim=NAN),), {"ssim": 0.5}, "not measured"),
        ((row(psnr=20.0), row("pruning", psnr=NAN)), {"psnr": 50.0}, "not measured for the defence 'pruning'"),
        ((row(psnr=20.0),), {"psnr": NAN}, "finite"),
        ((row(psnr=20.0),), {"psnr": math.inf}, "finite"),
        ((row(),), {"psnr": 10.0}, "not measured"),
    ],
    ids=["unknown", "absent", "unmeasured", "one defence unmeasured", "nan", "infinite", "nothing scored"],
)
def test_a_limit_never_passes_in_silence(rows: tuple[Finding, ...], limits: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidCase, match=message):
        result(*rows).exceeding(limits)


def test_one_attack_that_measured_is_enough_for_a_defence() -> None:
    both = result(row(attack="linear_layer", psnr=NAN), row(attack="quasi_newton", psnr=20.0))
    assert both.exceeding({"psnr": 25.0}) == []


def test_every_metric_can_be_limited() -> None:
    for name in METRICS:
        check_limit(name, 0.5)


def test_rows_keep_the_order_of_defences_and_put_the_leakiest_attack_first(make_record: MakeRecord) -> None:
    records = [
        make_record(defence=defence, attack=attack, scores={"identification": (found,), "psnr": (psnr,)})
        for defence, attack, found, psnr in [
            ("none", "weak", 0.0, 10.0),
            ("none", "strong", 1.0, 30.0),
            ("none", "sharp", 1.0, 40.0),
            ("none", "blind", NAN, NAN),
            ("clipping", "weak", 0.0, 10.0),
            ("clipping", "strong", 0.0, 12.0),
        ]
    ]
    audit = summarise_records(records, {})
    assert [(one.defence, one.attack) for one in audit.rows] == [
        ("none", "sharp"),
        ("none", "strong"),
        ("none", "weak"),
        ("none", "blind"),
        ("clipping", "strong"),
        ("clipping", "weak"),
    ]
    assert audit["none"].attack == "sharp"
    assert audit["clipping"].attack == "strong"
    with pytest.raises(KeyError):
        audit["pruning"]


def test_a_row_is_the_mean_over_all_victims_of_all_rounds_beside_its_null(make_record: MakeRecord) -> None:
    records = [
        make_record(round=0, batch_size=2, scores={"psnr": (10.0, 20.0), "identification": (0.0, 1.0)}, seconds=1.0),
        make_record(round=1, batch_size=2, scores={"psnr": (30.0, NAN), "identification": (1.0, NAN)}, seconds=2.0),
        make_record(round=0, null=True, scores={"psnr": (7.0, 9.0), "identification": (0.0, 0.0)}, seconds=9.0),
    ]
    (only,) = summarise_records(records, {}).rows
    assert (only.rounds, only.victims, only.seconds) == (2, 4, 3.0)
    psnr = only.measurements["psnr"]
    assert (psnr.attack.mean, psnr.attack.worst, psnr.attack.count) == (20.0, 30.0, 3)
    assert (psnr.null.mean, psnr.null.count) == (8.0, 2)
    assert only.measurements["identification"].attack.mean == pytest.approx(2 / 3)


def test_scores_once_measured_are_shown_without_the_weights_that_measured_them(
    make_record: MakeRecord,
) -> None:
    record = make_record(scores={"psnr": (20.0,), "lpips_alex": (0.3,), "lpips_vgg": (NAN,)})
    (only,) = summarise_records([record], {}).rows
    assert only.measurements["lpips_alex"].attack.mean == 0.3
    assert not only.measurements["lpips_alex"].metric.higher_is_leakier
    assert not only.measurements["lpips_vgg"].measured


def test_a_null_without_its_attack_makes_no_row(make_record: MakeRecord) -> None:
    assert summarise_records([make_record(null=True)], {}).rows == ()


def test_the_json_of_a_result_holds_every_number_and_no_nan(make_record: MakeRecord) -> None:
    record = make_record(
        scores={"psnr": (20.0,), "ssim": (NAN,), "identification": (1.0,)},
        evidence=(1e-9,),
        facts={"loss": NAN, "layer": "head"},
        ledger=(Fact(Subject.LABELS, True, "given"),),
    )
    audit = summarise_records([record], {"seed": 7})
    text = json.dumps(audit.to_json(), allow_nan=False)
    payload = json.loads(text)
    assert payload["seed"] == 7
    (only,) = payload["rows"]
    assert only["metrics"]["psnr"]["mean"] == 20.0
    assert only["metrics"]["psnr"]["worst"] == 20.0
    # Student's interval needs two examples.
    assert only["metrics"]["psnr"]["interval"] == [None, None]
    assert only["metrics"]["ssim"] == {
        "measured": False,
        "mean": None,
        "worst": None,
        "std": None,
        "interval": [None, None],
        "count": 0,
        "null": {"mean": None, "interval": [None, None], "count": 0},
        "guess": None,
        "higher_is_leakier": True,
        "unit": "",
    }
    assert only["facts"] == {"loss": None, "layer": "head"}
    assert only["assumptions"] == [{"name": "labels", "disclosed": True, "detail": "given"}]
    assert only["verdict"] == "leaks"


def test_nothing_found_by_finite_differences_is_no_evidence_that_there_is_nothing(make_record: MakeRecord) -> None:
    for route, doubted in (("FiniteDifference", True), ("DoubleBackward, 3 at a time", False)):
        record = replace(make_record(), evidence=(0.6,), facts={"route": route})
        judgement, _ = judge({"best": [record]}, {})["best"]
        assert (Reason.FINITE_DIFFERENCES in judgement.reasons) == doubted
        assert judgement.verdict is Verdict.INCONCLUSIVE
