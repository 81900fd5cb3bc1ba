"""The gate: limits on scores and on the number of leaked examples, and what cannot be told."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence

import pytest
from audit_support import *  # noqa: F403
from audit_support import MakeRecord

from leakgauge.audit.limits import check_limit
from leakgauge.audit.record import Record
from leakgauge.audit.result import AuditResult, summarise_records
from leakgauge.errors import GateFailed, Inconclusive, InvalidCase, LeakFound

Judge = Callable[..., list[Record]]


@pytest.fixture
def judged(make_record: MakeRecord) -> Judge:
    """``judged("pruning", leaked=1)``: a record of eight examples of which so many came back, and its null."""

    def make(
        defence: str = "none", leaked: int = 0, attack: str = "able", residual: float = 0.1, works: bool = True
    ) -> list[Record]:
        scores = {"psnr": (20.0,) * 8, "identification": (1.0,) * leaked + (0.0,) * (8 - leaked)}
        both = {"defence": defence, "attack": attack, "batch_size": 8, "scores": scores, "strangers": 4000}
        evidence = (1e-9,) * leaked + (0.5,) * (8 - leaked)
        control = (1e-9 if works else 0.5,) * 8
        return [
            make_record(**both, evidence=evidence, residual=residual),
            make_record(**both, null=1, evidence=(0.5,) * 8, control=control, residual=0.1),
        ]

    return make


def result_of(*groups: Sequence[Record], complete: bool = True) -> AuditResult:
    return summarise_records([record for group in groups for record in group], {}, complete=complete)


@pytest.mark.parametrize(("leaked", "limit", "passes"), [(1, 0, False), (1, 1, True), (0, 0, True), (8, 7, False)])
def test_the_number_of_leaked_examples_is_a_limit(judged: Judge, leaked: int, limit: int, passes: bool) -> None:
    result = result_of(judged(leaked=leaked))
    sentences = [] if passes else [f"none: {leaked} of 8 leaked, the limit is {limit} (attack able)"]
    assert result.exceeding({"leaked": limit}) == sentences
    if passes:
        result.check({"leaked": limit})
    else:
        with pytest.raises(LeakFound, match=f"{leaked} of 8 leaked"):
            result.check({"leaked": limit})


def test_without_limits_a_check_lets_nothing_leak(judged: Judge) -> None:
    result_of(judged()).check()
    with pytest.raises(LeakFound):
        result_of(judged(leaked=1)).check()


@pytest.mark.parametrize("limits", [{"leaked": 0}, {"psnr": 100.0}, {"identification": 1.0}], ids=str)
def test_what_cannot_be_told_does_not_pass_unless_it_is_allowed_to(judged: Judge, limits: Mapping[str, float]) -> None:
    result = result_of(judged(), judged("pruning", residual=0.9))
    with pytest.raises(Inconclusive) as told:
        result.check(limits)
    (sentence,) = told.value.sentences
    assert sentence.startswith("pruning: what came back does not explain the update; give the attack a larger budget")
    result.check(limits, allow_inconclusive=True)


def test_a_leak_wins_over_what_cannot_be_told(judged: Judge) -> None:
    with pytest.raises(LeakFound):
        result_of(judged(leaked=1), judged("pruning", residual=0.9)).check({"leaked": 0})


def test_an_attack_whose_control_failed_does_not_spoil_what_another_with_a_working_one_shows(judged: Judge) -> None:
    unable = judged(attack="unable", works=False)
    result_of(judged(), unable).check()
    with pytest.raises(Inconclusive, match="finds nothing in other updates even without a defence"):
        result_of(unable).check()


def test_a_part_of_an_audit_passes_no_gate(judged: Judge) -> None:
    with pytest.raises(Inconclusive, match="stopped early"):
        result_of(judged(), complete=False).check()


def test_what_was_not_judged_cannot_be_limited(judged: Judge, make_record: MakeRecord) -> None:
    with pytest.raises(InvalidCase, match="was not judged for the defence 'pruning'"):
        result_of(judged(), [make_record(defence="pruning")]).exceeding({"leaked": 0})


@pytest.mark.parametrize("limit", [float("nan"), float("inf")])
def test_a_limit_that_nothing_could_exceed_is_refused(limit: float) -> None:
    with pytest.raises(InvalidCase, match="finite"):
        check_limit("leaked", limit)


@pytest.mark.parametrize("kind", [LeakFound, Inconclusive])
def test_what_a_gate_says_crosses_processes(kind: type[GateFailed]) -> None:
    error = pickle.loads(pickle.dumps(kind(["one.", "two."])))  # noqa: S301
    assert (type(error), error.sentences, str(error)) == (kind, ("one.", "two."), "one.\ntwo.")
