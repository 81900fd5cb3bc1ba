from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from audit_support import *  # noqa: F403
from audit_support import MakeRecord

from leakgauge.audit.limits import check_limit
from leakgauge.audit.record import Record
from leakgauge.audit.result import AuditResult, Finding, Measurement, summarise_records
from leakgauge.audit.verdict import CERTAIN, Judgement, Reason, Verdict, against_nulls, holm, judge, of_all
from leakgauge.catalogue import METRICS, describe_metric
from leakgauge.errors import InvalidCase
from leakgauge.metrics import Summary
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.types import Certificate, Outcome

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


SURE, CHANCE = 1e-9, 0.4


def judged(make_record: MakeRecord, *, nulls: int = 3, control: float = SURE, **changes: Any) -> Judgement:
    """Of two examples and their nulls; ``null_`` before a change makes it one of the nulls."""
    usual = {"evidence": (CHANCE, CHANCE), "strangers": 4000, "batch_size": 2, "residual": 0.1, "settled": True}
    own = {name: value for name, value in changes.items() if not name.startswith("null_")}
    of_nulls = {name.removeprefix("null_"): value for name, value in changes.items() if name.startswith("null_")}
    records = [make_record(**usual | own)]
    shared = usual | {"control": (control, control), "strangers": own.get("strangers", 4000)}
    records += [make_record(null=number + 1, **shared | of_nulls) for number in range(nulls)]
    return summarise_records(records, {}).judgement("none")


@pytest.mark.parametrize(
    ("changes", "verdict", "reasons"),
    [
        ({}, Verdict.NO_LEAK_FOUND, ()),
        ({"evidence": (SURE, CHANCE)}, Verdict.LEAKS, ()),
        ({"evidence": (SURE, CHANCE, CHANCE)}, Verdict.LEAKS_PARTLY, ()),
        ({"control": CHANCE}, Verdict.INCONCLUSIVE, (Reason.CONTROL_FAILED,)),
        ({"nulls": 0}, Verdict.INCONCLUSIVE, (Reason.NO_CONTROL,)),
        ({"residual": 0.3}, Verdict.INCONCLUSIVE, (Reason.NOT_EXPLAINED,)),
        ({"residual": 0.04, "null_residual": 0.001}, Verdict.NO_LEAK_FOUND, ()),
        ({"residual": math.nan}, Verdict.NO_LEAK_FOUND, ()),
        ({"settled": False}, Verdict.INCONCLUSIVE, (Reason.BUDGET_ENDED,)),
        ({"settled": False, "null_settled": False}, Verdict.NO_LEAK_FOUND, ()),
        ({"settled": None}, Verdict.NO_LEAK_FOUND, ()),
        (
            {"evidence": (SURE, CHANCE), "null_evidence": (SURE, CHANCE)},
            Verdict.INCONCLUSIVE,
            (Reason.NULL_RECOVERS_TOO,),
        ),
        ({"evidence": (1e-29, CHANCE), "null_evidence": (1e-6, CHANCE)}, Verdict.LEAKS, ()),
        ({"evidence": (0.03, CHANCE), "strangers": 9, "control": 0.1}, Verdict.INCONCLUSIVE, (Reason.CROWD_TOO_SMALL,)),
        ({"evidence": (0.03, CHANCE), "strangers": 9}, Verdict.INCONCLUSIVE, (Reason.CROWD_TOO_SMALL,)),
        ({"strangers": 9}, Verdict.NO_LEAK_FOUND, ()),
        ({"evidence": ()}, Verdict.NOT_JUDGED, ()),
    ],
)
def test_nothing_found_is_no_leak_only_where_a_leak_would_have_been_found(
    changes: dict[str, Any], verdict: Verdict, reasons: tuple[Reason, ...], make_record: MakeRecord
) -> None:
    if len(changes.get("evidence", ())) == 3:
        changes = changes | {"nulls": 0}
    found = judged(make_record, **changes)
    assert (found.verdict, found.reasons) == (verdict, reasons)


@pytest.mark.parametrize("nulls", [3, 0])
@pytest.mark.parametrize(
    ("p", "copied", "verdict"),
    [
        (SURE, True, Verdict.LEAKS),
        (SURE, False, Verdict.INCONCLUSIVE),
        (CERTAIN, True, Verdict.INCONCLUSIVE),
    ],
)
def test_of_a_recorded_update_that_is_not_explained_only_a_copy_is_believed(
    p: float, copied: bool, verdict: Verdict, nulls: int, make_record: MakeRecord
) -> None:
    recorded = {"evidence": (p, CHANCE), "copied": (copied, False), "truth_residual": 0.9, "null_truth_residual": 0.0}
    found = judged(make_record, **recorded, nulls=nulls)
    assert found.verdict is verdict
    assert found.verdict.leaks or Reason.NOT_EXPLAINED in found.reasons


@pytest.mark.parametrize(("copied", "verdict"), [(True, Verdict.LEAKS), (False, Verdict.INCONCLUSIVE)])
def test_strangers_that_were_made_convict_of_copies_alone(
    copied: bool, verdict: Verdict, make_record: MakeRecord
) -> None:
    found = judged(make_record, evidence=(SURE, CHANCE), copied=(copied, False), made=True)
    assert found.verdict is verdict
    assert (Reason.CROWD_OF_ANOTHER_KIND in found.reasons) is not copied


def test_holm_corrects_for_the_tests_of_all_attacks_and_rounds_of_a_defence(make_record: MakeRecord) -> None:
    assert holm((0.01, 0.04, 0.03, 0.005)) == pytest.approx((0.03, 0.06, 0.06, 0.02))  # Holm, 1979
    records = [
        make_record(attack=attack, round=number, evidence=(0.004 if number else CHANCE, CHANCE), strangers=4000)
        for attack in ("one", "other")
        for number in range(3)
    ]
    audit = summarise_records(records, {})
    assert {row.leaked for row in audit.rows} == {2}  # 12 tests: 12 x .004 < .05
    assert audit.rows[0].leaks == ((1, 0), (2, 0))
    more = [*records, make_record(attack="third", evidence=(CHANCE,), strangers=4000)]
    assert {row.leaked for row in summarise_records(more, {}).rows} == {0}  # 13 x .004 > .05


def test_nulls_only_ever_weaken_the_evidence() -> None:
    for nulls in ((), (0.5,), (1e-6, 0.9), (1e-9, 1e-8, 1e-7), (0.3, 0.4, 0.5)):
        found = [against_nulls(p, nulls) for p in (1e-30, 1e-9, 1e-4, 0.05, 0.5, 1.0)]
        assert found == sorted(found)
        assert all(one >= p for one, p in zip(found, (1e-30, 1e-9, 1e-4, 0.05, 0.5, 1.0)))
    assert against_nulls(1e-9, (1e-9,) * 3) == 1.0


def test_one_attack_whose_control_worked_suffices_and_a_leak_outweighs_every_doubt() -> None:
    clean = Judgement(Verdict.NO_LEAK_FOUND)
    failed = Judgement(Verdict.INCONCLUSIVE, reasons=(Reason.CONTROL_FAILED,))
    doubtful = Judgement(Verdict.INCONCLUSIVE, reasons=(Reason.NOT_EXPLAINED,))
    leaks = Judgement(Verdict.LEAKS_PARTLY)
    assert of_all([clean, failed]) is clean
    assert of_all([failed, failed]) is failed
    assert of_all([clean, doubtful]) is doubtful
    assert of_all([doubtful, clean, leaks, failed]) is leaks
    assert of_all([]).verdict is Verdict.NOT_JUDGED


def test_the_power_is_that_of_the_control_at_the_lower_end_of_its_interval(make_record: MakeRecord) -> None:
    nulls = [make_record(null=number, evidence=(1.0,) * 2, control=(SURE, SURE)) for number in (1, 2, 3)]
    real = make_record(evidence=(CHANCE,) * 2, strangers=4000)
    power = summarise_records([real, *nulls], {})["none"].power
    assert power is not None
    rate = 6 / (6 + 1.959964**2)  # Wilson's, of six in six
    assert (power.seen, power.tried) == (6, 6)
    assert (power.one, power.all_of_them) == pytest.approx((rate, 1 - (1 - rate) ** 2))


@pytest.mark.parametrize(
    ("found", "tried", "examples", "reasons"),
    [
        (0, 5, 1, (Reason.CONTROL_FAILED,)),
        (3, 5, 1, (Reason.CONTROL_WEAK,)),  # a leak would have been seen in three of five
        (4, 5, 1, ()),
        (2, 6, 2, (Reason.CONTROL_WEAK,)),  # 1 - (2/3)^2 = .56
        (3, 5, 2, ()),  # 1 - .4^2 = .84
        (1, 6, 8, (Reason.CONTROL_WEAK,)),
        (2, 6, 8, ()),
    ],
)
def test_an_acquittal_needs_a_control_by_which_a_leak_would_probably_have_been_seen(
    found: int, tried: int, examples: int, reasons: tuple[Reason, ...], make_record: MakeRecord
) -> None:
    real = make_record(evidence=(CHANCE,) * examples, strangers=4000)
    controls = [SURE] * found + [CHANCE] * (tried - found)
    nulls = [make_record(null=1, evidence=(1.0,) * examples, control=tuple(controls))]
    judgement = summarise_records([real, *nulls], {}).judgement("none")
    assert judgement.reasons == reasons
    assert judgement.verdict is (Verdict.INCONCLUSIVE if reasons else Verdict.NO_LEAK_FOUND)


def test_the_undefended_nulls_are_the_control_of_every_defence(make_record: MakeRecord) -> None:
    def cases(defence: str, control: float) -> list[Record]:
        real = make_record(defence=defence, evidence=(CHANCE,), strangers=4000)
        nulls = [make_record(defence=defence, null=one, evidence=(1.0,), control=(control,)) for one in (1, 2)]
        return [real, *nulls]

    # Noise hides the nulls' own examples as it is meant to; that is no failure of the attack.
    audit = summarise_records([*cases("none", SURE), *cases("noise", CHANCE)], {})
    assert audit.judgement("noise").verdict is Verdict.NO_LEAK_FOUND
    audit = summarise_records([*cases("none", CHANCE), *cases("noise", CHANCE)], {})
    assert audit.judgement("noise").reasons == (Reason.CONTROL_FAILED,)


PROOF = Certificate(2e-7, 1e-5, "nothing else gives this update", 4)


def verdict_on(*records: Record) -> Judgement:
    return judge({"quasi_newton": records}, {})["quasi_newton"][0]


def test_what_is_certified_is_a_verdict_of_its_own_with_or_without_a_truth(make_record: MakeRecord) -> None:
    told = verdict_on(make_record(evidence=(1e-9,) * 4, certificate=PROOF))
    assert (told.verdict, told.leaked) == (Verdict.CERTIFIED, (True,) * 4)
    untold = verdict_on(make_record(evidence=(), certificate=PROOF))
    assert untold == Judgement(Verdict.CERTIFIED, (True,) * 4)
    assert verdict_on(make_record(evidence=())).verdict is Verdict.NOT_JUDGED
    assert next(iter(Verdict)) is Verdict.CERTIFIED
    assert Verdict.CERTIFIED.leaks


def test_a_copy_that_is_certified_needs_no_crowd_to_convict(make_record: MakeRecord) -> None:
    small = make_record(evidence=(0.2,) * 4, copied=(True,) * 4, strangers=9)
    assert not verdict_on(small).verdict.leaks
    assert verdict_on(replace(small, certificate=PROOF)).verdict is Verdict.CERTIFIED


def test_a_certificate_of_other_examples_does_not_convict_these(make_record: MakeRecord) -> None:
    audited = make_record(evidence=(0.5,) * 4, copied=(False,) * 4, certificate=PROOF)
    assert not verdict_on(audited).verdict.leaks
    foreign = make_record(evidence=(), truth_residual=0.7, certificate=PROOF)
    assert verdict_on(foreign).verdict is Verdict.NOT_JUDGED


def test_certificates_of_nulls_are_of_their_own_examples(make_record: MakeRecord) -> None:
    audited = make_record(evidence=(0.5,) * 4)
    null = make_record(null=1, evidence=(0.4,) * 4, control=(1e-9,) * 4, certificate=PROOF)
    assert not verdict_on(audited, null).verdict.leaks
    certified = replace(audited, evidence=(1e-9,) * 4, certificate=PROOF)
    assert verdict_on(certified, null).verdict is Verdict.CERTIFIED
    assert verdict_on(certified, replace(audited, round=1), null).verdict is not Verdict.CERTIFIED
