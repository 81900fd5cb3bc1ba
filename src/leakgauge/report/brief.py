"""An audit in one sentence that needs no statistics: what was found, whether the control worked, what is possible."""

from __future__ import annotations

from collections.abc import Sequence

from leakgauge.audit.result import RECORDED, UNDEFENDED, AuditResult, Finding
from leakgauge.audit.verdict import Verdict, gravest
from leakgauge.report.judgements import VACUOUS, name_control, show_leaked, show_percent
from leakgauge.report.words import join, noun, of_encodings, only_labels_leak, short_names, standings


def in_brief(result: AuditResult) -> str | None:
    """None where private inputs were not judged, or encodings or labels alone are what it is about."""
    judged = [row for row in standings(result) if row.verdict is not Verdict.NOT_JUDGED]
    if not judged or of_encodings(result) or only_labels_leak(result):
        return None
    worst = gravest([row.verdict for row in judged])
    row = next((row for row in judged if row.defence == UNDEFENDED), None)
    row = row or next(row for row in judged if row.verdict is worst)
    return f"{_found(row, judged)}; {_control(result.rows)}; {_possible(row, judged)}."


def _found(row: Finding, judged: Sequence[Finding]) -> str:
    kind = noun([row])
    several = f"private {kind}{'' if len(row.judgement.leaked) == 1 else 's'}"
    where = {RECORDED: "this recorded update", UNDEFENDED: "the undefended update"}.get(row.defence)
    where = where or f"the update with {short_names([one.defence for one in judged])[row.defence]}"
    if row.verdict is Verdict.INCONCLUSIVE:
        return f"Whether {where} gives a private {kind} away cannot be told"
    if row.verdict is Verdict.NO_LEAK_FOUND:
        return f"Found none of {len(row.judgement.leaked)} {several} in {where}"
    proven = ", certified exact," if row.verdict is Verdict.CERTIFIED else ""
    return f"Found {show_leaked(row)} {several}{proven} in {where}"


def _control(rows: Sequence[Finding]) -> str:
    tried = [row.power for row in rows if row.power is not None and row.power.tried]
    if not tried:
        return "no control was run"
    return f"the control {name_control(tried)}"


def _possible(row: Finding, judged: Sequence[Finding]) -> str:
    """The best chance that any attacker could have, of the defences that bound it."""
    called = short_names([one.defence for one in judged])
    limits = [
        (one, one.bound.at_most, one.bound)
        for one in judged
        if one.bound is not None and one.bound.at_most is not None and one.bound.at_most < VACUOUS
    ]
    if not limits:
        return "nothing limits what a stronger attacker could find"
    shares = [
        show_percent(share) + ("" if one.defence == RECORDED else f" with {called[one.defence]}")
        for one, share, _ in limits
    ]
    bound = limits[0][2]  # of all rows: the crowd and the batch are the same
    tries = "" if bound.guesses == 1 else f" in {bound.guesses} guesses"
    said = f"the chance that any attacker picks one out of {bound.crowd + 1}{tries} is at most {join(shares)}"
    return said if any(one is row for one, *_ in limits) else f"{said}, and not limited otherwise"
