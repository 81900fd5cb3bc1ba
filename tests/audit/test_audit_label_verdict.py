"""Labels are said to leak if they were read, never if they were guessed, and if it cannot be told, why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from audit_support import *  # noqa: F403
from audit_support import MakeRecord

from leakgauge.audit.label_verdict import LabelJudgement, judge_labels
from leakgauge.audit.record import Record
from leakgauge.audit.verdict import Reason, Verdict

Attack = Callable[[list[int]], list[int]]
"""From the labels of a batch to those that it names."""

C10, C100 = 10, 100


def counted(labels: list[int], classes: int) -> tuple[int, ...]:
    return tuple(np.bincount(np.array(labels, dtype=int), minlength=classes).tolist())


@pytest.fixture
def judged(make_record: MakeRecord) -> Callable[..., LabelJudgement]:
    def judge(
        batches: list[list[int]], attack: Attack, classes: int, *, control: bool = True, seed: int = 0, **changes: Any
    ) -> LabelJudgement:
        """Of one attack on these batches, beside three nulls of each and controls that are read exactly."""
        random = np.random.default_rng(seed)

        def record(labels: list[int], named: list[int], **more: Any) -> Record:
            counts = {"true_counts": counted(labels, classes), "restored_counts": counted(named, classes)}
            return make_record(scores={}, **counts | more)

        records, controls = [], []
        for number, labels in enumerate(batches):
            records.append(record(labels, attack(labels), round=number, **changes))
            for null in (1, 2, 3):
                own = random.integers(classes, size=len(labels)).tolist()
                of_it: dict[str, Any] = {"round": number, "null": null, "decoy_counts": counted(own, classes)}
                records.append(record(labels, attack(own), **of_it))
                controls.append(record(labels, own if control else labels[::-1], **of_it))
        return judge_labels({"one": records}, {"one": controls})["one"]

    return judge


def exact(labels: list[int]) -> list[int]:
    return labels


@pytest.mark.parametrize(
    ("batches", "classes"),
    [
        ([[7]], C100),
        ([[7], [2]], C10),
        ([[1, 2, 3, 4]], C10),
        ([[5] * 4], C10),
        ([[5] * 64], C10),
        ([list(range(10))], C10),
        ([list(range(10)) * 6], C10),
        ([[0] * 50 + [1] * 9 + [2]], C10),
        ([[1] * 8], 2),
        ([list(range(100)) * 4], C100),
    ],
    ids=[
        "one",
        "two rounds",
        "few",
        "one class",
        "many of one class",
        "each once",
        "balanced",
        "skewed",
        "two",
        "large",
    ],
)
def test_labels_that_are_read_leak(judged: Any, batches: list[list[int]], classes: int) -> None:
    found = judged(batches, exact, classes)
    assert found.verdict is Verdict.LEAKS
    assert found.p <= 0.05
    assert found.reasons == ()


def test_one_label_of_ten_classes_cannot_convict(judged: Any) -> None:
    found = judged([[7]], exact, C10)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.p == pytest.approx(0.1)
    assert Reason.TOO_FEW_LABELS in found.reasons


def test_what_is_read_of_one_class_is_named(judged: Any) -> None:
    # The thirty of class 0 are told from the rest, whose labels come back as any others.
    def one_class(labels: list[int]) -> list[int]:
        return [label if label == 0 else 1 + (label + 1) % 9 for label in labels]

    found = judged([[0] * 30 + [3] * 20 + [7] * 14], one_class, C10)
    assert found.verdict is Verdict.LEAKS_PARTLY
    assert [(one.label, one.true, one.restored) for one in found.leaked] == [(0, 30, 30)]


@pytest.mark.parametrize(
    ("batches", "classes"),
    [([[3] * 8], C10), ([[3]], C100), ([[3], [3], [3]], C10), ([[3] * 40 + [1] * 2], C10)],
)
def test_an_attack_that_always_says_the_same_is_not_believed(judged: Any, batches: Any, classes: int) -> None:
    found = judged(batches, lambda labels: [3] * len(labels), classes)
    assert not found.verdict.leaks
    assert Reason.NULL_RECOVERS_TOO in found.reasons


def test_a_balanced_answer_to_a_balanced_batch_is_not_believed(judged: Any) -> None:
    # It is right to the last label, and no guess of single labels would be: but so it is of unrelated updates.
    found = judged([list(range(10))], lambda labels: list(range(10)), C10)
    assert not found.verdict.leaks
    assert Reason.NULL_RECOVERS_TOO in found.reasons


def test_nothing_found_is_no_leak_only_beside_a_control_that_worked(judged: Any) -> None:
    def wrong(labels: list[int]) -> list[int]:
        return [(label + 5) % C10 for label in labels]

    batch = [[1, 1, 2, 3, 4, 4]]
    found = judged(batch, wrong, C10)
    assert found.verdict is Verdict.NO_LEAK_FOUND
    assert found.control == (18, 18)
    failed = judged(batch, wrong, C10, control=False)
    assert (failed.verdict, failed.reasons) == (Verdict.INCONCLUSIVE, (Reason.CONTROL_FAILED,))


def test_an_update_that_the_declared_client_does_not_explain_acquits_nobody(judged: Any) -> None:
    found = judged(
        [[1, 1, 2, 3, 4, 4]], lambda labels: [(label + 5) % C10 for label in labels], C10, truth_residual=0.1
    )
    assert (found.verdict, found.reasons) == (Verdict.INCONCLUSIVE, (Reason.NOT_EXPLAINED,))
    short = judged([[1, 1, 2, 3, 4, 4]], lambda labels: [(label + 5) % C10 for label in labels][:3], C10)
    assert Reason.NOT_EXPLAINED in short.reasons


@pytest.mark.parametrize(("classes", "size", "rounds"), [(C100, 1, 1), (C10, 4, 1), (C10, 1, 4)])
@pytest.mark.parametrize("habit", ["even", "skewed"])
def test_guesses_are_hardly_ever_taken_for_reading(
    judged: Any, classes: int, size: int, rounds: int, habit: str
) -> None:
    random = np.random.default_rng(0)
    weights = np.exp(-np.arange(classes)) if habit == "skewed" else np.ones(classes)

    def draw(count: int) -> list[int]:
        return random.choice(classes, size=count, p=weights / weights.sum()).tolist()  # type: ignore[no-any-return]

    wrong = sum(
        judged([draw(size) for _ in range(rounds)], lambda labels: draw(len(labels)), classes, seed=trial).verdict.leaks
        for trial in range(20)
    )
    assert wrong <= 3  # more would happen once in sixty if it were one in twenty


def test_a_recorded_update_is_acquitted_only_where_its_inputs_show_that_it_was_read_as_it_was_made(
    make_record: MakeRecord,
) -> None:
    batch, own = counted([1, 1, 2, 3, 4, 4], C10), [counted([7, 8, 9, 9, null, 5], C10) for null in (0, 1, 2)]

    def verdict(residual: float) -> LabelJudgement:
        nulls = [
            make_record(null=1 + k, true_counts=batch, restored_counts=one, decoy_counts=one, truth_residual=1e-7)
            for k, one in enumerate(own)
        ]
        real = make_record(true_counts=batch, restored_counts=counted([5] * 6, C10), truth_residual=residual)
        return judge_labels({"one": [real, *nulls]}, {"one": nulls}, recorded=True)["one"]

    assert verdict(1e-7).verdict is Verdict.NO_LEAK_FOUND
    for misread in (2.0, float("nan")):  # such as a sign reversed; or nothing is known of the inputs
        assert (verdict(misread).verdict, verdict(misread).reasons) == (Verdict.INCONCLUSIVE, (Reason.NOT_EXPLAINED,))
