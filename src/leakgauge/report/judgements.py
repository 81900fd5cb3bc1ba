"""What a verdict rests on, in words: which examples leaked and how surely, why an answer is inconclusive, and what
stands beside it: the crowd, the control, the power, the bound."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from leakgauge.audit.record import Record
from leakgauge.audit.result import RECORDED, AuditResult, Finding
from leakgauge.audit.verdict import Power, Reason, Verdict
from leakgauge.bounds import Bound
from leakgauge.metrics import PSNR, Summary
from leakgauge.report.words import capitalise, join, noun, short_names, standings

MOST_NUMBERS = 8
"""So many leaked examples are named; the others are counted."""

_LEAST = 1e-24
"""P-values below this differ by nothing that counts."""

_EXACT = 60.0
"""The PSNR from which on a copy is called exact: no pixel is off by what an eye or eight bits could tell."""

VACUOUS = 0.995
"""A bound above this says nothing, and is left to the table."""


_LOW_POWER = 0.5
"""An attack that would rather have overlooked a leak of everything shows little by finding nothing."""


class Clause(NamedTuple):
    """Why an answer is inconclusive, and what to do about it."""

    why: str
    remedy: str


REASONS = {
    Reason.CONTROL_FAILED: Clause(
        "the attack finds nothing in other updates even without a defence",
        "give it a larger budget or try another attack",
    ),
    Reason.CONTROL_WEAK: Clause(
        "the attack finds too little in other updates even without a defence",
        "give it a larger budget, more rounds, or try another attack",
    ),
    Reason.NO_CONTROL: Clause(
        "whether the attack finds anything without a defence is not known", "give references, so that it can be tried"
    ),
    Reason.NOT_EXPLAINED: Clause(
        "what came back does not explain the update", "give the attack a larger budget or try another one"
    ),
    Reason.BUDGET_ENDED: Clause("the budget ended before the loss settled", "give the attack more steps or seconds"),
    Reason.CROWD_TOO_SMALL: Clause(
        "the crowd is too small to convict even an exact copy",
        "give more examples of the same kind in the data, or more references",
    ),
    Reason.CROWD_OF_ANOTHER_KIND: Clause(
        "what came back is nearer to the private examples than the crowd is, which is not of their kind",
        "give references of the same kind",
    ),
    Reason.NULL_RECOVERS_TOO: Clause("the attack returns the same from an unrelated update", "try another attack"),
    Reason.TOO_FEW_LABELS: Clause(
        "so few labels of so few classes could have been guessed", "give more rounds or larger batches"
    ),
    Reason.FINITE_DIFFERENCES: Clause(
        "the derivatives were only estimated, by finite differences", "use a model that can be differentiated twice"
    ),
    Reason.ATTACK_FAILED: Clause("the attack ended with an error", "see the record for its reason and run it again"),
}


_RECORDED_REASONS = REASONS | {
    Reason.CONTROL_FAILED: Clause(
        "the attack finds nothing in simulated updates of the declared client either",
        "give it a larger budget or try another attack",
    ),
    Reason.CONTROL_WEAK: Clause(
        "the attack finds too little in simulated updates of the declared client",
        "give it a larger budget or try another attack",
    ),
    Reason.NO_CONTROL: Clause(
        "whether the attack finds anything in updates of this client is not known",
        "give --references, so that it can be tried",
    ),
    Reason.NOT_EXPLAINED: Clause(
        "the declared client does not explain the update", "see with `leakgauge explain` which one does"
    ),
    Reason.CROWD_TOO_SMALL: Clause(
        "the crowd is too small to convict even an exact copy", "give more --references of the same kind"
    ),
}


_LABEL_REASONS = {
    Reason.TOO_FEW_LABELS: REASONS[Reason.TOO_FEW_LABELS],
    Reason.NOT_EXPLAINED: Clause(
        "the declared client does not explain the update", "see with `leakgauge explain` which one does"
    ),
    Reason.NULL_RECOVERS_TOO: Clause("the attack names the same labels in unrelated updates", "try another attack"),
    Reason.NO_CONTROL: Clause(
        "whether the attack restores any labels without a defence is not known",
        "declare the client's algorithm, so that it can be tried",
    ),
    Reason.CONTROL_FAILED: Clause(
        "the attack restores no labels even of undefended updates of known ones", "try another attack"
    ),
}


def explain_label_doubt(row: Finding) -> str:
    """Why nothing can be told of the labels, and what to do about it."""
    reasons = () if row.labels is None else row.labels.reasons
    clauses = [clause for reason, clause in _LABEL_REASONS.items() if reason in reasons]
    return f"{_whys(clauses)}; {join(list(dict.fromkeys(one.remedy for one in clauses)))}"


def doubtful_labels(result: AuditResult) -> list[Finding]:
    """Of each defence whose labels alone were attacked, a row of which nothing can be told if that holds for all."""
    found = []
    for defence in dict.fromkeys(row.defence for row in result.rows):
        rows = [row for row in result.rows if row.defence == defence]
        judged = [row.labels.verdict for row in rows if row.labels is not None]
        if judged and all(row.verdict is Verdict.NOT_JUDGED for row in rows) and set(judged) == {Verdict.INCONCLUSIVE}:
            found.append(next(row for row in rows if row.labels is not None))
    return found


def explain_doubt(row: Finding, *, so: str = "") -> str:
    """Why nothing can be told, what follows from that, and what to do about it."""
    known = _RECORDED_REASONS if row.defence == RECORDED else REASONS
    reasons = row.judgement.reasons or (Reason.NO_CONTROL,)
    clauses = [clause for reason, clause in known.items() if reason in reasons]
    remedies = [clause.remedy for clause in clauses]
    # One may be part of another, as "try another attack" is of several.
    needed = [one for one in remedies if not any(one in other and one != other for other in remedies)]
    return f"{_whys(clauses)}{so and f', {so}'}; {join(list(dict.fromkeys(needed)))}"


def _whys(clauses: Sequence[Clause]) -> str:
    """Several reasons, in which the attack is named once."""
    named = [number for number, clause in enumerate(clauses) if clause.why.startswith("the attack ")]
    return join(
        [
            re.sub("^the attack ", "it ", clause.why) if number in named[1:] else clause.why
            for number, clause in enumerate(clauses)
        ]
    )


def inconclusive_sentences(result: AuditResult) -> list[str]:
    """One for each defence of which nothing can be told, with its reason and a remedy."""
    return [
        f"{row.defence}: {explain_doubt(row)} (attack {row.attack})"
        for row in standings(result)
        if row.verdict is Verdict.INCONCLUSIVE
    ] + [f"{row.defence}: {explain_label_doubt(row)} (attack {row.attack})" for row in doubtful_labels(result)]


def show_p(p: float) -> str:
    """A p-value as a person reads it.

    >>> show_p(0.0312), show_p(2.13e-5), show_p(1e-30)
    ('p 0.031', 'p 2e-05', 'p 1e-24')
    """
    return f"p {p:.2g}" if p >= 1e-3 else f"p {max(p, _LEAST):.0e}"


def strength(row: Finding) -> float | None:
    """The weakest of the leaks by its corrected p; where nothing leaked, the strongest that was seen."""
    if not row.judgement.p:
        return None
    leaked = [p for p, found in zip(row.judgement.p, row.judgement.leaked) if found]
    return max(leaked) if leaked else min(row.judgement.p)


def show_strength(row: Finding) -> str:
    """How surely they leaked: as exact copies, proven or seen, or by the weakest p; nothing where it was not judged."""
    if row.verdict is Verdict.CERTIFIED:
        return "certified"
    records = {record.round: record for record in row.records}
    if row.leaks and all(is_exact(records[number], place) for number, place in row.leaks):
        return "exact"
    p = strength(row)
    return "" if p is None else show_p(p)


def is_exact(record: Record, place: int) -> bool:
    """Whether an image came back as it was, to the eye and to eight bits."""
    psnr = record.scores.get(PSNR.name, ())
    return place < len(psnr) and psnr[place] >= _EXACT


def show_leaked(row: Finding) -> str:
    """How many leaked, of how many that were judged."""
    return f"{row.leaked} of {len(row.judgement.leaked)}"


def describe_leaked(row: Finding) -> str:
    """How many, of what, which, and how surely, such as "3 of 64 private images: numbers 5, 17 and 40 (p 2e-05)"."""
    counted = f"{show_leaked(row)} private {noun([row])}{'' if len(row.judgement.leaked) == 1 else 's'}"
    which, sure = name_leaked(row), show_strength(row).replace("p ", "p at most ")
    return f"{counted}{f': {which}' if which else ''}{f' ({sure})' if sure else ''}"


def name_leaked(row: Finding) -> str:
    """Which leaked, by their places in their rounds, counted from one; nothing where all or none did."""
    if row.leaked in (0, len(row.judgement.leaked)):
        return ""
    named, rest = row.leaks[:MOST_NUMBERS], len(row.leaks) - MOST_NUMBERS
    parts = []
    for number in dict.fromkeys(number for number, _ in named):
        own = [str(place + 1) for round_, place in named if round_ == number]
        whose = f" of round {number + 1}" if row.rounds > 1 else ""
        parts.append(f"number{'' if len(own) == 1 else 's'} {join(own)}{whose}")
    return join([*parts, *([f"{rest} more"] if rest > 0 else [])])


def describe_crowd(result: AuditResult) -> str:
    """What the private examples were told from: how many others, and what they are; nothing where none were."""
    count = max((record.strangers for record in result.records), default=0)
    if not count:
        return ""
    told = result.description.get("crowd")
    what = told if isinstance(told, str) else f"{count:,} other {noun(result.rows)}s"
    nulls = {record.null for row in result.rows for record in row.nulls}
    beside = f", and with what {len(nulls)} unrelated update{'' if len(nulls) == 1 else 's'} gave" if nulls else ""
    return f"Compared with {what}{beside}."


def describe_control(rows: Iterable[Finding]) -> str:
    """Whether the same attacks find what is there without a defence; by the one that found most."""
    tried = [row for row in rows if row.power is not None and row.power.tried]
    best = max(tried, key=lambda row: _rate(row), default=None)
    if best is None or best.power is None:
        return ""
    where = "simulated" if best.defence == RECORDED else "undefended"
    others = f"{best.power.tried} other {noun([best])}{'' if best.power.tried == 1 else 's'}"
    outcome = name_control([best.power])
    return f"The control {outcome}: {best.attack} found {best.power.seen} of {others} in {where} updates."


def name_control(tried: Sequence[Power]) -> str:
    """What became of the control, by the attack that found most."""
    if any(power.seen and power.suffices for power in tried):
        return "worked"
    return "found little" if any(power.seen for power in tried) else "failed"


def describe_power(rows: Iterable[Finding]) -> str:
    """How surely a leak would have been seen where none was found, by the attack with the best control."""
    clean = [row for row in rows if row.verdict is Verdict.NO_LEAK_FOUND and row.power is not None]
    best = max(clean, key=lambda row: _rate(row), default=None)
    if best is None or best.power is None or not best.judgement.p:
        return ""
    count, what, power = len(best.judgement.p), noun([best]), best.power
    only = "only " if power.all_of_them < _LOW_POWER else ""
    if count == 1:
        return f"A leak of the {what} would have been seen with a probability of {only}{power.one:.2f}."
    return (
        f"A leak of 1 of {count} {what}s would have been seen with probability {power.one:.2f}, "
        f"of all {count} with {only}{power.all_of_them:.2f}."
    )


def describe_bounds(result: AuditResult) -> list[str]:
    """For each defence with a bound: what was found, and what any attacker could find at most."""
    rows = [row for row in standings(result) if row.verdict is not Verdict.NOT_JUDGED]
    called = short_names([row.defence for row in rows])
    sentences = []
    for row in rows:
        bound = row.bound
        if bound is None or bound.at_most is None or bound.at_most >= VACUOUS:
            continue
        whose = "" if row.defence == RECORDED else f"with {called[row.defence]} "
        tries = "" if bound.guesses == 1 else f" in {bound.guesses} guesses"
        sentences.append(
            capitalise(
                f"{whose}{show_leaked(row)} {'was' if row.leaked == 1 else 'were'} found; no attacker, however strong, "
                f"picks one out of {bound.crowd + 1} with a probability above {show_percent(bound.at_most)}{tries}."
            )
        )
    return sentences


def luck(found: Summary, bound: Bound) -> float:
    """At most how probable it is that an attacker whom the bound holds for finds as many.

    Examples of different rounds are independent of one another. Those of one batch are not, and all that holds of
    them is Markov's inequality.

    >>> one_of_four = Summary(0.25, 1.0, 0.05, 0.7, 4)
    >>> round(luck(one_of_four, Bound(0.0339, "", 99)), 3), luck(one_of_four, Bound(0.0339, "", 99, guesses=4))
    (0.129, 0.1356)
    """
    hits = round(found.mean * found.count) if found.count else 0
    if bound.at_most is None or hits == 0:
        return 1.0
    p, count = bound.at_most, found.count
    if bound.guesses > 1:
        return min(1.0, count * p / hits)
    return sum(math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(hits, count + 1))


def _rate(row: Finding) -> float:
    return row.power.seen / row.power.tried if row.power is not None and row.power.tried else 0.0


def show_percent(share: float) -> str:
    """
    >>> show_percent(0.09236), show_percent(0.9999)
    ('9.24 %', '100 %')
    """
    return f"{100 * share:.3g} %"
