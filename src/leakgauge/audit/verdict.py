"""The rule by which leakage is judged, example by example; that of labels is in `label_verdict`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Literal

from scipy import stats

from leakgauge.audit.record import Record
from leakgauge.metrics import least_by_rank
from leakgauge.space import ImageSpace
from leakgauge.types import Outcome

SIGNIFICANT = 0.05
"""How often, at most, an update that gives nothing away is said to leak."""
CERTAIN = 1e-4
"""What a corrected p-value has to stay below where the declared client does not explain the update."""
POWERFUL = 0.8
"""How probable it has to be that a leak of all private examples would have been seen, for none to be worth saying."""
_SLOWEST = 0.1
"""The least exponent with which the p-values of unrelated updates fall."""
EXPLAINED = 0.05
"""A residual below this is an explanation, whatever the nulls reach."""


class Verdict(Enum):
    """What the evidence says, gravest first. There is no "safe": an audit bounds leakage from below."""

    CERTIFIED = "leaks, certified exact"
    """All private examples came back, and the attack proves it by the update alone, whether or not there is a truth."""
    LEAKS = "leaks"
    """At least half of the private examples can be told from strangers by what came back."""
    LEAKS_PARTLY = "leaks partly"
    """At least one can."""
    INCONCLUSIVE = "inconclusive"
    """Nothing was found, and nothing shows that it would have been."""
    NO_LEAK_FOUND = "no leak found"
    """What came back says no more than chance and unrelated updates do, where the same attack finds what is there."""
    NOT_JUDGED = "not judged"
    """There was nothing to compare with."""

    @property
    def leaks(self) -> bool:
        return self in (Verdict.CERTIFIED, Verdict.LEAKS, Verdict.LEAKS_PARTLY)


class Reason(Enum):
    """Why a verdict is inconclusive."""

    NOT_EXPLAINED = "the declared client does not explain the update"
    BUDGET_ENDED = "the budget ended before the loss settled"
    CONTROL_FAILED = "the positive control failed"
    CONTROL_WEAK = "the positive control found too little"
    NO_CONTROL = "there is no positive control"
    CROWD_TOO_SMALL = "the crowd is too small"
    CROWD_OF_ANOTHER_KIND = "the crowd is not of the private examples' kind"
    NULL_RECOVERS_TOO = "the attack returns it from an unrelated update too"
    TOO_FEW_LABELS = "so few labels of so few classes could have been guessed"
    FINITE_DIFFERENCES = "the derivatives were finite differences"
    ATTACK_FAILED = "the attack ended with an error"


@dataclass(frozen=True)
class Judgement:
    """The verdict on one attack under one defence; ``leaked`` and the corrected ``p`` go through its rounds and, within
    each, its private examples."""

    verdict: Verdict
    leaked: tuple[bool, ...] = ()
    p: tuple[float, ...] = ()
    reasons: tuple[Reason, ...] = ()


NOTHING_TO_JUDGE = Judgement(Verdict.NOT_JUDGED)


@dataclass(frozen=True)
class Power:
    """How often the positive control found what is there: ``seen`` of ``tried`` examples.

    ``one`` and ``all_of_them`` say how probable it is that a leak of one, or of all, of the private examples had been
    seen, at the lower end of the rate's 95 % interval [Wilson, 1927].
    """

    seen: int
    tried: int
    one: float
    all_of_them: float
    suffices: bool = True
    """Whether a leak of all of them had probably been seen (`POWERFUL`), at the rate itself and with what leaked of
    them undefended."""


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """The p-values corrected for their number, so that those up to a level are all true but for that probability
    [Holm, 1979].

    >>> holm((0.01, 0.5, 0.02))
    (0.03, 0.5, 0.04)
    """
    corrected, least = [1.0] * len(p), 0.0
    for place, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        least = max(least, min(1.0, p[index] * (len(p) - place)))
        corrected[index] = least
    return tuple(corrected)


def against_nulls(p: float, nulls: Sequence[float], tests: int = 1) -> float:
    """The p-value of one example, one of so many ``tests``, beside those that B unrelated updates gave it.

    Where it is below them all, the least of them stands for the quantile 1 / (1 + B), and below it p-values fall as the
    p-values of chance do; else its rank counts. If an unrelated update alone would convict the example, they do not
    fall so: the crowd is no measure of it. Then the spread of the nulls is, at its lower confidence limit.

    >>> against_nulls(0.25, (1.0, 0.5, 0.75)), against_nulls(0.01, (0.5, 0.01, 0.2))
    (0.25, 0.5)
    """
    if not nulls:
        return p
    as_good, least = sum(null <= p for null in nulls), min(nulls)
    if as_good:
        return max(p, (1 + as_good) / (1 + len(nulls)))
    exponent = 1.0
    if _returned_too(nulls, tests * len(nulls)):
        spread = sum(math.log(max(nulls) / null) for null in nulls)
        limit = stats.gamma.ppf(SIGNIFICANT, len(nulls) - 1) / spread if spread > 0 else 0.0
        exponent = min(1.0, max(_SLOWEST, limit))
    return max(p, (p / least) ** exponent / (1 + len(nulls)))


def _returned_too(nulls: Sequence[float], tests: int) -> bool:
    """Whether an unrelated update alone would convict an example."""
    return min(nulls, default=1.0) * tests <= SIGNIFICANT


def judge(
    attacks: Mapping[str, Sequence[Record]],
    controls: Mapping[str, Sequence[Record]],
    undefended: Mapping[str, Sequence[bool]] = MappingProxyType({}),
) -> dict[str, tuple[Judgement, Power | None]]:
    """Of all attacks on one defence together: Holm's correction is over all of their tests.

    ``attacks`` are the records of each with its nulls; ``controls`` the nulls of the undefended client. What leaked of
    the private examples themselves when they were ``undefended`` is a control as well.
    """
    kept = {name: [one for one in records if not one.null and one.evidence] for name, records in attacks.items()}
    tests = sum(len(record.evidence) for records in kept.values() for record in records)
    weighed = {
        name: [
            against_nulls(p, nulls, tests)
            for record in records
            for p, nulls in zip(record.evidence, _nulls(record, attacks[name]), strict=True)
        ]
        for name, records in kept.items()
    }
    corrected = iter(holm([p for values in weighed.values() for p in values]))
    judged = {}
    for name, records in kept.items():
        p = tuple(next(corrected) for _ in weighed[name])
        power = _power(controls.get(name, ()), tests, len(p), undefended.get(name, ()))
        own = _judge_one(records, attacks[name], controls.get(name, ()), p, power, tests)
        judged[name] = (_with_certificates(own, attacks[name]), power)
    return judged


def _with_certificates(judgement: Judgement, group: Sequence[Record]) -> Judgement:
    """The judgement, or that all leaked where each record proves it; nulls prove something of their own examples alone.

    A certificate says that the update is of what came back. Where a truth is known, or said to be, that is to be the
    truth as well: an update that gives away others does not convict these.
    """
    records = [one for one in group if not one.null]
    proofs = [one.certificate for one in records if one.certificate is not None]
    if not records or len(proofs) < len(records):
        return judgement
    if not any(one.evidence for one in records):  # without a truth, or without a crowd to compare with
        foreign = any(one.truth_residual > EXPLAINED for one in records)
        count = sum(one.examples for one in proofs)
        return judgement if foreign else Judgement(Verdict.CERTIFIED, (True,) * count)
    copied = [copy for one in records for copy in one.copied or (False,) * len(one.evidence)]
    leaked = tuple(found or copy for found, copy in zip(judgement.leaked, copied, strict=True))
    return Judgement(Verdict.CERTIFIED, leaked, judgement.p) if all(leaked) else judgement


def _nulls(record: Record, group: Sequence[Record]) -> list[tuple[float, ...]]:
    """For each example of a record the p-values that the unrelated updates of its round gave it."""
    nulls = [one.evidence for one in group if one.null and one.round == record.round and one.evidence]
    return [tuple(null[place] for null in nulls) for place in range(len(record.evidence))]


def _judge_one(
    records: Sequence[Record],
    group: Sequence[Record],
    controls: Sequence[Record],
    p: tuple[float, ...],
    power: Power | None,
    tests: int,
) -> Judgement:
    crashed = any(one.outcome is Outcome.FAILED and not one.null for one in group)
    if not p:
        return Judgement(Verdict.INCONCLUSIVE, reasons=(Reason.ATTACK_FAILED,)) if crashed else NOTHING_TO_JUDGE
    explained = [is_explained(record, group) for record in _by_example(records)]
    # Of a simulated update the client is known: what an attack fails to explain of it is the attack's own affair.
    sure = [known or math.isnan(one.truth_residual) for one, known in zip(_by_example(records), explained, strict=True)]
    copied = [one for record in records for one in record.copied or (False,) * len(record.evidence)]
    made = [record.made for record in _by_example(records)]
    low = [one <= (SIGNIFICANT if known else CERTAIN) for one, known in zip(p, sure, strict=True)]
    # By made strangers, or in an update that was misread, nothing but a copy is sure.
    leaked = tuple(
        one and (copy or (known and not by_made))
        for one, copy, known, by_made in zip(low, copied, sure, made, strict=True)
    )
    if any(leaked):
        verdict = Verdict.LEAKS if 2 * sum(leaked) >= len(leaked) else Verdict.LEAKS_PARTLY
        return Judgement(verdict, leaked, p)
    reasons = []
    if not all(explained) or any(_departs(record, group, "residual") for record in records):
        reasons.append(Reason.NOT_EXPLAINED)
    raw = [pair for one in records for pair in zip(one.evidence, _nulls(one, group), strict=True)]
    if any(one * tests <= SIGNIFICANT and _returned_too(nulls, tests * len(nulls)) for one, nulls in raw):
        reasons.append(Reason.NULL_RECOVERS_TOO)
    if any(one and by_made for one, by_made in zip(low, made, strict=True)):
        reasons.append(Reason.CROWD_OF_ANOTHER_KIND)
    small = _too_small(records, raw, controls, power, tests)
    if small:
        reasons.append(Reason.CROWD_TOO_SMALL)
    if power is None:
        reasons.append(Reason.NO_CONTROL)
    elif not power.suffices and not small:
        reasons.append(Reason.CONTROL_WEAK if power.seen else Reason.CONTROL_FAILED)
    elif power.suffices and any(record.settled is False for record in records) and _settled(controls, tests):
        reasons.append(Reason.BUDGET_ENDED)
    if any(record.outcome is Outcome.OVERDUE for record in records) and Reason.BUDGET_ENDED not in reasons:
        reasons.append(Reason.BUDGET_ENDED)
    if any(str(record.facts.get("route", "")).startswith("FiniteDifference") for record in records):
        reasons.append(Reason.FINITE_DIFFERENCES)
    if crashed:
        reasons.append(Reason.ATTACK_FAILED)
    return Judgement(Verdict.INCONCLUSIVE if reasons else Verdict.NO_LEAK_FOUND, leaked, p, tuple(reasons))


def _too_small(
    records: Sequence[Record],
    raw: Sequence[tuple[float, Sequence[float]]],
    controls: Sequence[Record],
    power: Power | None,
    tests: int,
) -> bool:
    """Whether something came back nearer to an example, or to one of a control that found nothing, than any stranger,
    and there were too few of these for that to count."""
    floor = max(least_by_rank(one.space or ImageSpace(1, 1, 1), one.strangers) for one in records)
    if floor * tests <= SIGNIFICANT:
        return False
    failed = [p for one in controls for p in one.control] if power is not None and not power.seen else []
    return any(p <= floor for p in (*(against_nulls(one, nulls, tests) for one, nulls in raw), *failed))


def _by_example(records: Sequence[Record]) -> list[Record]:
    """The record of each private example."""
    return [record for record in records for _ in record.evidence]


def is_explained(record: Record, group: Sequence[Record]) -> bool:
    """Whether the declared client explains the update as well as those of simulated clients, or none could be compared.

    By the truth that a recorded update is said to be of, where there is one: the declared client gives that very update
    of it, or else the client, the file or the truth is another. Otherwise by what came back.
    """
    return not _departs(record, group, "residual" if math.isnan(record.truth_residual) else "truth_residual")


def _departs(record: Record, group: Sequence[Record], measure: Literal["residual", "truth_residual"]) -> bool:
    nulls = [value for one in group if one.null and not math.isnan(value := getattr(one, measure))]
    # A client that is known gives the update of the truth whether or not there are others to compare it with.
    comparable = bool(nulls) or measure == "truth_residual"
    return comparable and getattr(record, measure) > max(EXPLAINED, 2 * max(nulls, default=0.0))


def _settled(controls: Sequence[Record], tests: int) -> bool:
    """Whether every control that found something had a loss that settled: who needs no rest has no excuse."""
    return all(one.settled is not False for one in controls if any(p * tests <= SIGNIFICANT for p in one.control))


def _power(controls: Sequence[Record], tests: int, examples: int, undefended: Sequence[bool] = ()) -> Power | None:
    tried = [p * tests <= SIGNIFICANT for record in controls for p in record.control]
    if not tried or not examples:
        return None
    rate = stats.binomtest(sum(tried), len(tried)).proportion_ci(method="wilson").low
    both = (*tried, *undefended)
    suffices = 1 - (1 - sum(both) / len(both)) ** examples >= POWERFUL
    return Power(sum(tried), len(tried), rate, 1 - (1 - rate) ** examples, suffices)


def gravest(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=list(Verdict).index, default=Verdict.NOT_JUDGED)


def of_all(judgements: Sequence[Judgement]) -> Judgement:
    """The judgement of a defence: the gravest of its attacks.

    One attack whose control worked suffices to say that no leak was found: that another failed its own control, or
    found too little in it, is then no reason for doubt.
    """
    found_nothing = any(one.verdict is Verdict.NO_LEAK_FOUND for one in judgements)
    failed = {Reason.CONTROL_FAILED, Reason.CONTROL_WEAK, Reason.NO_CONTROL}
    counted = [one for one in judgements if not (found_nothing and one.reasons and failed.issuperset(one.reasons))]
    worst = gravest(one.verdict for one in counted)
    return next((one for one in counted if one.verdict is worst), NOTHING_TO_JUDGE)
