"""The rule for labels: were they read from the update, or would a guess have done as well?

A guess is even over the classes, or follows the attack's own habit: what it names in unrelated updates, unless these
show that it reads what is theirs. All counts of an attack are tested together, and each class by itself; half of the
error goes to each, corrected [Holm, 1979] over attacks and over classes. Both corrections hold for tests that depend on
one another, as the counts of one batch do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from leakgauge.audit.record import Record
from leakgauge.audit.verdict import CERTAIN, SIGNIFICANT, Reason, Verdict, holm, is_explained
from leakgauge.files import finite
from leakgauge.metrics.label_evidence import (
    Chances,
    Counts,
    Guess,
    chance_of_class,
    chance_of_right,
    even_chances,
    habit_chances,
    labels_right,
)

_READS = 0.005
"""What it takes to believe that an attack reads labels, so that those it names in unrelated updates are no habit."""


@dataclass(frozen=True)
class ClassEvidence:
    """One class of one round: how many examples it has and was said to have, and the corrected p-value."""

    round: int
    label: int
    true: int
    restored: int
    p: float
    leaked: bool


@dataclass(frozen=True)
class LabelJudgement:
    """What may be said of restored labels; ``p``, corrected, is of all counts together, ``classes`` are those present.

    ``control`` says how many of the labels of undefended unrelated updates came back, and of how many; None if there
    were none.
    """

    verdict: Verdict
    p: float = math.nan
    classes: tuple[ClassEvidence, ...] = ()
    control: tuple[int, int] | None = None
    reasons: tuple[Reason, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        control = None if self.control is None else dict(zip(("restored", "tried"), self.control, strict=True))
        return {
            "verdict": self.verdict.value,
            "p": finite(self.p),
            "classes": [asdict(one) for one in self.classes],
            "control": control,
            "reasons": [one.name.lower() for one in self.reasons],
        }

    @property
    def leaked(self) -> tuple[ClassEvidence, ...]:
        """The classes whose counts are more than a guess by themselves."""
        return tuple(one for one in self.classes if one.leaked)


@dataclass(frozen=True)
class _Weighed:
    """The evidence of one attack before any correction; ``even`` is what it were if nothing but even guesses counted,
    ``best`` the least that any answer could have reached."""

    records: Sequence[Record]
    whole: float
    even: float
    best: float
    leaves: tuple[float, ...]


def judge_labels(
    attacks: Mapping[str, Sequence[Record]], controls: Mapping[str, Sequence[Record]], *, recorded: bool = False
) -> dict[str, LabelJudgement]:
    """Of all attacks on one defence that named labels: the records of each with its nulls, and the undefended nulls.

    A ``recorded`` update may have been made otherwise than it is declared: unless its private inputs show that the
    declared client makes this very update of them, that nothing was found proves nothing.
    """
    weighed = {
        name: _weigh(records, [one for one in group if one.null])
        for name, group in attacks.items()
        if (records := [one for one in group if not one.null and one.true_counts and one.restored_counts])
    }
    split = 2 if any(one.leaves for one in weighed.values()) else 1
    wholes = holm([min(1.0, split * one.whole) for one in weighed.values()])
    leaves = iter(holm([min(1.0, split * p) for one in weighed.values() for p in one.leaves]))
    judged = {}
    for (name, one), whole in zip(weighed.items(), wholes, strict=True):
        own = tuple(next(leaves) for _ in one.leaves)
        judged[name] = _judge(one, attacks[name], controls.get(name, ()), whole, own, split * len(weighed))
        unproven = recorded and any(math.isnan(record.truth_residual) for record in one.records)
        if unproven and judged[name].verdict is Verdict.NO_LEAK_FOUND:
            judged[name] = replace(judged[name], verdict=Verdict.INCONCLUSIVE, reasons=(Reason.NOT_EXPLAINED,))
    return judged


def _weigh(records: Sequence[Record], nulls: Sequence[Record]) -> _Weighed:
    classes = len(_true(records[0]))
    right = sum(labels_right(_true(one), _restored(one)) for one in records)
    even = chance_of_right([_guess(one, even_chances(classes)) for one in records], right)
    named = [_restored(one) for one in nulls if one.restored_counts]
    habit = None if not named or reads(nulls) <= _READS else habit_chances(named, classes)
    whole = even
    if habit is not None:
        whole = max(even, chance_of_right([_guess(one, habit) for one in records], right))
    everything = sum(sum(_true(one)) for one in records)
    exact = [Guess(_true(one), sum(_true(one)), even_chances(classes)) for one in records]
    return _Weighed(
        records,
        _beside_nulls(whole, records, nulls, right),
        even,
        chance_of_right(exact, everything),
        _leaves(records, nulls, habit),
    )


def reads(nulls: Sequence[Record]) -> float:
    """The p-value of what came back from unrelated updates against their own labels: does the attack read any?

    Against even guesses, and for each update against what the attack names in the others.
    """
    usable = [one for one in nulls if one.decoy_counts and one.restored_counts]
    if len(usable) < 2:
        return 1.0
    classes = len(_own(usable[0]))
    right = sum(labels_right(_own(one), _restored(one)) for one in usable)
    found = []
    for habit in (False, True):
        guesses = []
        for one in usable:
            others = [_restored(other) for other in usable if other is not one]
            chances = habit_chances(others, classes) if habit else even_chances(classes)
            guesses.append(Guess(_own(one), sum(_restored(one)), chances))
        found.append(chance_of_right(guesses, right))
    return max(found)


def _beside_nulls(p: float, records: Sequence[Record], nulls: Sequence[Record], right: int) -> float:
    """The p-value beside nulls that came as near to the private labels though their own labels are farther away."""
    as_good = told = 0
    for number in sorted({one.null for one in nulls}):
        beside = {one.round: one for one in nulls if one.null == number and one.restored_counts}
        if any(record.round not in beside for record in records):
            continue
        pairs = [(_true(record), beside[record.round]) for record in records]
        known = all(null.decoy_counts for _, null in pairs)
        if known and sum(labels_right(true, _own(null)) for true, null in pairs) >= right:
            continue  # who reads this one's labels is as near too
        told += 1
        as_good += sum(labels_right(true, _restored(null)) for true, null in pairs) >= right
    return max(p, (1 + as_good) / (1 + told)) if as_good else p


def _leaves(records: Sequence[Record], nulls: Sequence[Record], habit: Chances | None) -> tuple[float, ...]:
    """The p-value of each class of each round; none where there is but one, of which the whole says all."""
    places = _places(records)
    if len(places) < 2:
        return ()
    found = []
    for record, label in places:
        true, restored = _true(record)[label], _restored(record)[label]
        chances = [1 / len(_true(record))] + ([] if habit is None else [float(habit[label])])
        p = chance_of_class(true, restored, sum(_restored(record)), chances)
        gap = abs(restored - true)
        telling = [
            one
            for one in nulls
            if one.round == record.round and one.restored_counts
            if not (one.decoy_counts and abs(one.decoy_counts[label] - true) <= gap)
        ]
        as_good = sum(abs(_restored(one)[label] - true) <= gap for one in telling)
        found.append(max(p, (1 + as_good) / (1 + len(telling))) if as_good else p)
    return tuple(found)


def _judge(
    one: _Weighed,
    group: Sequence[Record],
    controls: Sequence[Record],
    whole: float,
    leaves: tuple[float, ...],
    tests: int,
) -> LabelJudgement:
    # What came back of images says whether images explain the update; labels may be read from one that they do not.
    explained = all(record.evidence or is_explained(record, group) for record in one.records)
    level = SIGNIFICANT if explained else CERTAIN
    classes = tuple(
        ClassEvidence(record.round, label, _true(record)[label], _restored(record)[label], p, p <= level)
        for (record, label), p in zip(_places(one.records), leaves)
    )
    counted = [null for null in controls if null.decoy_counts and null.restored_counts]
    control = None
    if counted:
        came_back = sum(labels_right(_own(null), _restored(null)) for null in counted)
        control = came_back, sum(sum(_own(null)) for null in counted)
    if whole <= level or any(found.leaked for found in classes):
        right = sum(labels_right(_true(record), _restored(record)) for record in one.records)
        half = whole <= level and 2 * right >= sum(sum(_true(record)) for record in one.records)
        return LabelJudgement(Verdict.LEAKS if half else Verdict.LEAKS_PARTLY, whole, classes, control)
    reasons = []
    if not explained or any(sum(_true(record)) != sum(_restored(record)) for record in one.records):
        reasons.append(Reason.NOT_EXPLAINED)
    if one.best * tests > SIGNIFICANT:
        reasons.append(Reason.TOO_FEW_LABELS)
    elif one.even * tests <= SIGNIFICANT < whole:
        reasons.append(Reason.NULL_RECOVERS_TOO)
    if control is None:
        reasons.append(Reason.NO_CONTROL)
    elif reads(counted) > SIGNIFICANT:
        reasons.append(Reason.CONTROL_FAILED)
    verdict = Verdict.INCONCLUSIVE if reasons else Verdict.NO_LEAK_FOUND
    return LabelJudgement(verdict, whole, classes, control, tuple(reasons))


def _places(records: Sequence[Record]) -> list[tuple[Record, int]]:
    return [(record, label) for record in records for label, count in enumerate(_true(record)) if count]


def _guess(record: Record, chances: Chances) -> Guess:
    return Guess(_true(record), sum(_restored(record)), chances)


def _true(record: Record) -> Counts:
    return record.true_counts or ()


def _restored(record: Record) -> Counts:
    return record.restored_counts or ()


def _own(null: Record) -> Counts:
    return null.decoy_counts or ()
