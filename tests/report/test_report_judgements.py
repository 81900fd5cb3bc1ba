"""What a verdict rests on, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_report_examples import PLAN, audit, audit_of, null_of, record

from leakgauge.audit.record import Record
from leakgauge.audit.result import AuditResult
from leakgauge.audit.verdict import Reason, Verdict
from leakgauge.bounds import bound_of
from leakgauge.defences import DPSGD, Clipping, GaussianNoise, chain
from leakgauge.protocol.local_update import FedSGD
from leakgauge.report.headline import headline
from leakgauge.report.judgements import (
    REASONS,
    describe_control,
    describe_crowd,
    describe_leaked,
    describe_power,
    explain_doubt,
    name_leaked,
)


def rounds(*leaked: tuple[int, ...], size: int = 64) -> list[Record]:
    """A record for each round in which these examples, counted from one, came back as exact copies."""
    found = []
    for number, places in enumerate(leaked):
        evidence = tuple(0.0 if place + 1 in places else 0.5 for place in range(size))
        made = record(hits=0, size=size, round=number, evidence=evidence, residual=0.1)
        psnr = tuple(90.0 if place + 1 in places else 10.0 for place in range(size))
        found.append(replace(made, scores={**made.scores, "psnr": psnr}))
    return found


def judged(*leaked: tuple[int, ...], size: int = 64) -> AuditResult:
    cases = rounds(*leaked, size=size)
    nulls = [replace(case, null=1, evidence=(0.5,) * size, control=(0.0,) * size) for case in cases]
    return audit_of([*cases, *nulls])


def test_the_leaked_are_named_by_their_numbers() -> None:
    (row,) = judged((5, 17, 40)).rows
    assert describe_leaked(row) == "3 of 64 private images: numbers 5, 17 and 40 (exact)"


def test_what_is_certain_but_blurred_is_not_called_exact() -> None:
    (row,) = audit_of([record(hits=2, evidence=(1e-29, 1e-29, *(0.5,) * 6))]).rows
    assert describe_leaked(row) == "2 of 8 private images: numbers 1 and 2 (p at most 1e-24)"


def test_of_several_rounds_each_is_named() -> None:
    (row,) = judged((5, 17), (), (3,)).rows
    assert name_leaked(row) == "numbers 5 and 17 of round 1 and number 3 of round 3"


def test_of_many_the_first_are_named_and_the_others_counted() -> None:
    (row,) = judged(tuple(range(2, 30))).rows
    assert name_leaked(row) == "numbers 2, 3, 4, 5, 6, 7, 8 and 9 and 20 more"


@pytest.mark.parametrize("leaked", [(), (1, 2)])
def test_where_all_or_none_leaked_numbers_say_nothing(leaked: tuple[int, ...]) -> None:
    assert name_leaked(judged(leaked, size=2).rows[0]) == ""


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("defence", ["none", "as recorded"])
def test_every_reason_has_a_clause_and_a_remedy(reason: Reason, defence: str) -> None:
    assert reason in REASONS
    (row,) = audit({defence: Verdict.INCONCLUSIVE}).rows
    why, _, remedy = explain_doubt(replace(row, judgement=replace(row.judgement, reasons=(reason,)))).partition("; ")
    assert len(why.split()) > 3
    assert remedy.split()[0] in ("give", "try", "see", "use")


def test_several_reasons_are_one_sentence_without_saying_a_remedy_twice() -> None:
    (row,) = audit({"none": Verdict.INCONCLUSIVE}).rows
    both = (Reason.NULL_RECOVERS_TOO, Reason.CONTROL_FAILED)
    assert explain_doubt(replace(row, judgement=replace(row.judgement, reasons=both))) == (
        "the attack finds nothing in other updates even without a defence and it returns the same from an unrelated "
        "update; "
        "give it a larger budget or try another attack"
    )


def test_a_failed_control_is_in_the_first_sentence_and_no_defence_is_credited() -> None:
    cases = [record("none", 0, residual=0.1), record("pruning", 0, residual=0.1)]
    blind = [replace(null_of(case), control=(0.5,) * 8) for case in cases]
    first, *rest = headline(audit_of([*cases, *blind]))
    assert first == (
        "Inconclusive: the attack finds nothing in other updates even without a defence, so no defence is credited; "
        "give it a larger budget or try another attack."
    )
    assert rest == ["The control failed: quasi_newton found 0 of 8 other images in undefended updates."]


def test_the_control_and_the_power_speak_of_the_attack_that_finds_most() -> None:
    weak, strong = record(hits=0, residual=0.1, attack="weak"), record(hits=0, residual=0.1, attack="strong")
    half = replace(null_of(weak), control=(0.0,) * 4 + (0.5,) * 4)
    rows = audit_of([weak, half, strong, null_of(strong)]).rows
    assert describe_control(rows) == "The control worked: strong found 8 of 8 other images in undefended updates."
    # Wilson's lower end of 8 of 8 is 8 / (8 + 1.96^2) = 0.676, and 1 - (1 - 0.676)^8 = 0.9999.
    assert describe_power(rows) == (
        "A leak of 1 of 8 images would have been seen with probability 0.68, of all 8 with 1.00."
    )
    assert describe_power(audit({"none": Verdict.LEAKS}).rows) == ""


def test_a_low_power_is_called_so() -> None:
    case = record(hits=0, residual=0.1)
    rows = audit_of([case, replace(null_of(case), control=(0.0,) * 2 + (0.5,) * 6)]).rows
    assert describe_power(rows).endswith("of all 8 with only 0.45.")


def test_a_control_that_found_little_is_not_said_to_have_worked_or_to_have_found_nothing() -> None:
    cases = [record("none", 0, residual=0.1), record("pruning", 0, residual=0.1)]
    dim = [replace(null_of(case), control=(0.0,) + (0.5,) * 7) for case in cases]
    first, *rest = headline(audit_of([*cases, *dim]))
    assert first == (
        "Inconclusive: the attack finds too little in other updates even without a defence, so no defence is credited; "
        "give it a larger budget, more rounds, or try another attack."
    )
    assert rest == ["The control found little: quasi_newton found 1 of 8 other images in undefended updates."]


def test_the_crowd_is_described_by_its_size_and_kind() -> None:
    case = record()
    result = audit_of([case, null_of(case)], {**PLAN, "crowd": "400 other images of photos"})
    told = "Compared with 400 other images of photos, and with what 1 unrelated update gave."
    assert describe_crowd(result) == told
    assert describe_crowd(audit_of([case])) == "Compared with 4,000 other images."
    assert describe_crowd(audit_of([record(hits=None, scores={})])) == ""


def test_what_was_found_stands_beside_what_could_be_found_at_most() -> None:
    private = "dpsgd:noise_multiplier=1"
    bounds = {
        "none": bound_of(FedSGD(), crowd=99).to_dict(),
        private: bound_of(DPSGD(noise_multiplier=1.0)(FedSGD()), crowd=99).to_dict(),
        "clipping": bound_of(Clipping(1.0)(FedSGD()), crowd=99).to_dict(),
    }
    said = headline(audit({"none": Verdict.LEAKS, private: Verdict.NO_LEAK_FOUND}, {**PLAN, "bounds": bounds}))
    (sentence,) = [one for one in said if "no attacker" in one]
    assert sentence == (
        "With DP-SGD 0 of 8 were found; "
        "no attacker, however strong, picks one out of 100 with a probability above 9.24 %."
    )


def test_a_bound_that_says_nothing_is_not_in_the_headline() -> None:
    weak = "clipping:max_norm=1+gaussian_noise:std=0.1"
    bound = bound_of(chain(Clipping(1.0), GaussianNoise(0.1))(FedSGD()), crowd=99)
    assert bound.at_most is not None
    said = headline(audit({weak: Verdict.NO_LEAK_FOUND}, {**PLAN, "bounds": {weak: bound.to_dict()}}))
    assert not any("no attacker" in sentence for sentence in said)
