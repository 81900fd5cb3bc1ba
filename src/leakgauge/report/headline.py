"""What an audit found, in sentences: the headline of page and console."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leakgauge.audit.result import RECORDED, UNDEFENDED, AuditResult, Finding
from leakgauge.audit.verdict import Reason, Verdict
from leakgauge.metrics import Identification, Kind, PublicFound
from leakgauge.report.judgements import (
    describe_bounds,
    describe_control,
    describe_leaked,
    describe_power,
    explain_doubt,
    explain_label_doubt,
    show_leaked,
)
from leakgauge.report.words import (
    any_labels_leak,
    capitalise,
    count_identified,
    count_restored,
    has_run,
    join,
    label_recall,
    labels_only,
    noun,
    of_encodings,
    only_labels_leak,
    short_names,
    show_identified,
    show_restored,
    space_of,
    standings,
)

Names = Callable[[Sequence[Finding]], str]
"""How a sentence calls the defences of some rows."""

_NO_CREDIT = "so no defence is credited"
_DOUBTED = {Reason.CONTROL_FAILED, Reason.CONTROL_WEAK}
"""Reasons that doubt the attack and not the defence."""


def headline(result: AuditResult) -> tuple[str, ...]:
    """What was found, most important sentence first; never more than the rows support."""
    everyone = standings(result)
    of_labels = _of_labels(result.rows)
    if all(row.verdict is Verdict.NOT_JUDGED for row in everyone):
        if of_labels:
            pictured = [row for row in result.rows if has_run(row) and not labels_only(row)]
            return *of_labels, *(
                [f"Whether {noun(pictured)}s leak was not measured. {_why_not_judged(pictured)}"] if pictured else []
            )
        return "Leakage was not measured.", _why_not_judged(result.rows)
    beside = [describe_control(result.rows), *describe_bounds(result), describe_power(everyone)]
    if of_encodings(result):
        return (*_of_encodings(everyone), *filter(None, beside), *of_labels)
    called = short_names([row.defence for row in everyone])

    def names(rows: Sequence[Finding]) -> str:
        return join([called[row.defence] for row in rows])

    leak = f"{noun(everyone)} leak" if any_labels_leak(result) else "leak"
    sentences = [*_of_updates(everyone, names, leak), *filter(None, beside)]
    if by_chance := [row for row in everyone if not row.verdict.leaks and count_identified(row)]:
        whose = {row.defence: "" if row.defence == RECORDED else f" with {called[row.defence]}" for row in by_chance}
        shares = join([f"{show_identified(row)}{whose[row.defence]}" for row in by_chance])
        sentences.append(f"Still picked out of the crowd, but too weakly to be called a leak: {shares}.")
    servers = dict.fromkeys(row.malicious_server for row in everyone if row.verdict.leaks)
    if dishonest := [server for server in servers if server is not None]:
        sentences.append(f"This rests on a malicious server: {join(dishonest)}.")
    return (*of_labels, *sentences) if only_labels_leak(result) else (*sentences, *of_labels)


def _of_updates(everyone: Sequence[Finding], names: Names, leak: str) -> list[str]:
    """What the undefended update gave away, what each defence made of it, and what is not known."""
    bare = next((row for row in everyone if row.defence == UNDEFENDED), None)
    defended = [row for row in everyone if row.defence != UNDEFENDED]
    if all(row.defence == RECORDED for row in everyone):
        return [_of_recorded(row, leak) for row in everyone]
    if bare is None or bare.verdict is Verdict.NOT_JUDGED:
        sentences = _without_comparison(defended, names, leak, audited=bare is not None)
    elif bare.verdict.leaks:
        sentences = _of_a_leak(bare, defended, names)
    elif bare.verdict is Verdict.INCONCLUSIVE:
        sentences = _of_doubt(bare, defended, names)
    else:
        sentences = _of_no_leak(defended, names, leak)
    said = {bare.judgement.reasons} if bare is not None and bare.verdict is Verdict.INCONCLUSIVE else set()
    sentences += _of_doubtful([row for row in defended if row.judgement.reasons not in said], names)
    if unjudged := [row for row in defended if row.verdict is Verdict.NOT_JUDGED]:
        sentences.append(f"{capitalise(names(unjudged))} {'was' if len(unjudged) == 1 else 'were'} not judged.")
    return sentences


def _of_encodings(rows: Sequence[Finding]) -> list[str]:
    sentences = []
    for row in rows:
        named = row.measured(PublicFound.name)
        part = "part of their data, " if row.verdict is Verdict.LEAKS_PARTLY else ""
        if row.verdict.leaks:
            of = "" if named is None else "the private part of "
            sentences.append(f"These encodings gave away {part}{of}{describe_leaked(row)}.")
        elif row.verdict is Verdict.INCONCLUSIVE:
            sentences.append(f"Inconclusive: {explain_doubt(row)}.")
        else:
            sentences.append("No leak was found in these encodings.")
        if named is not None:
            null = f" (null {100 * named.null.mean:.0f} %)" if named.null.count else ""
            sentences.append(f"The attack named {100 * named.attack.mean:.0f} % of the public images in them{null}.")
    return sentences


def _of_recorded(row: Finding, leak: str) -> str:
    if row.verdict is Verdict.INCONCLUSIVE:
        return f"Inconclusive: {explain_doubt(row)}."
    part = "part of its data, " if row.verdict is Verdict.LEAKS_PARTLY else ""
    gave = f"This recorded update gave away {part}{describe_leaked(row)}."
    return gave if row.verdict.leaks else f"No {leak} was found in this recorded update."


def _of_a_leak(bare: Finding, defended: Sequence[Finding], names: Names) -> list[str]:
    part = "part of its data, " if bare.verdict is Verdict.LEAKS_PARTLY else ""
    sentences = [f"This update gave away {part}{describe_leaked(bare)}."]
    leaking, clean = _leaking(defended), _clean(defended)
    lessened = [row for row in leaking if _share(row) < _share(bare)]
    useless = [row for row in leaking if row not in lessened]
    if clean:
        sentences.append(f"What stopped it: {names(clean)}.")
    elif leaking:
        sentences.append("No defence that was tried stopped it.")
    elif not defended:
        sentences.append("No defence was tried.")
    if lessened:
        shares = join([show_leaked(row) for row in lessened])
        sentences.append(f"{capitalise(names(lessened))} lessened it but did not stop it ({shares}).")
    if useless:
        sentences.append(f"{capitalise(names(useless))} did not help.")
    return sentences


def _of_doubt(bare: Finding, defended: Sequence[Finding], names: Names) -> list[str]:
    """Where not even the undefended update could be judged, no defence has done anything that could be seen."""
    sentences = [f"Inconclusive: {explain_doubt(bare, so=_NO_CREDIT if defended else '')}."]
    if leaking := _leaking(defended):
        shares = join([f"{describe_leaked(row)} with {names([row])}" for row in leaking])
        sentences.append(f"Yet this update gave away {shares}.")
    return sentences


def _of_doubtful(defended: Sequence[Finding], names: Names) -> list[str]:
    """What cannot be told of some defences, those of one reason in one sentence."""
    doubtful = [row for row in defended if row.verdict is Verdict.INCONCLUSIVE]
    groups = {reasons: [row for row in doubtful if row.judgement.reasons == reasons] for reasons in _reasons(doubtful)}
    so = {reasons: _NO_CREDIT if _DOUBTED & set(reasons) else "" for reasons in groups}
    return [
        f"Inconclusive with {names(rows)}: {explain_doubt(rows[0], so=so[reasons])}."
        for reasons, rows in groups.items()
    ]


def _of_no_leak(defended: Sequence[Finding], names: Names, leak: str) -> list[str]:
    if leaking := _leaking(defended):
        shares = join([f"{describe_leaked(row)} with {names([row])}" for row in leaking])
        return [
            f"No {leak} was found without a defence, yet this update gave away {shares}.",
            "Read both as what these attacks happened to find, not as the work of a defence.",
        ]
    if _clean(defended):
        return [f"No {leak} was found, undefended or defended."]
    return [f"No {leak} was found in the undefended update.", *([] if defended else ["No defence was tried."])]


def _without_comparison(defended: Sequence[Finding], names: Names, leak: str, *, audited: bool) -> list[str]:
    undefended = f"The undefended update was not {'judged' if audited else 'audited'}"
    sentences = [f"With {names([row])}, this update gave away {describe_leaked(row)}." for row in _leaking(defended)]
    if clean := _clean(defended):
        sentences.append(f"No {leak} was found with {names(clean)}.")
        return [*sentences, f"{undefended}; that there is something to stop is what the control shows."]
    doubtful = [row for row in defended if row.verdict is Verdict.INCONCLUSIVE]
    return [*sentences, *([] if doubtful else [f"{undefended}, so whether a defence helped is unknown."])]


def _of_labels(rows: Sequence[Finding]) -> list[str]:
    """What came back of labels that were hidden, for each defence by the attack that restored most."""
    best: dict[str, Finding] = {}
    for row in sorted(rows, key=lambda row: (not row.labels_leak, -count_restored(row))):
        if label_recall(row) is not None:
            best.setdefault(row.defence, row)
    if not best:
        return []
    ordered = [best[defence] for defence in dict.fromkeys(row.defence for row in rows) if defence in best]
    called = short_names([row.defence for row in ordered])
    guess = f"(guessing: {count_restored(ordered[0], guess=True):.1f})"

    def shares(chosen: Sequence[Finding]) -> str:
        return join([show_restored(row) + (f" with {called[row.defence]}" if len(best) > 1 else "") for row in chosen])

    leaking = [row for row in ordered if row.labels_leak]
    doubtful = [row for row in ordered if row.labels is not None and row.labels.verdict is Verdict.INCONCLUSIVE]
    explained = [row for row in ordered if not row.labels_leak and row not in doubtful]
    unknown = [
        f"Whether labels leak{f' with {called[row.defence]}' if len(best) > 1 else ''} is inconclusive: "
        f"{explain_label_doubt(row)}."
        for row in doubtful
    ]
    if not leaking:
        said = f"Labels were restored no more often than guessing or the null explains: {shares(explained)} {guess}."
        return [*([said] if explained else []), *unknown]
    first = next((row for row in leaking if row.defence == UNDEFENDED), leaking[0])
    whose = "" if len(best) == 1 or first.defence == UNDEFENDED else f"with {called[first.defence]}, "
    plural = "" if first.victims == 1 else "s"
    sentences = [
        capitalise(f"{whose}the labels of {show_restored(first)} private example{plural} were restored {guess}.")
    ]
    if others := [row for row in leaking if row is not first]:
        sentences.append(f"Also restored: {shares(others)}.")
    if explained:
        sentences.append(f"Restored no more often than guessing or the null explains: {shares(explained)}.")
    return [*sentences, *unknown]


def _share(row: Finding) -> float:
    """Of the private examples that were judged, how many leaked."""
    return row.leaked / max(len(row.judgement.leaked), 1)


def _reasons(rows: Sequence[Finding]) -> list[tuple[Reason, ...]]:
    return list(dict.fromkeys(row.judgement.reasons for row in rows))


def _leaking(rows: Sequence[Finding]) -> list[Finding]:
    return [row for row in rows if row.verdict.leaks]


def _clean(rows: Sequence[Finding]) -> list[Finding]:
    return [row for row in rows if row.verdict is Verdict.NO_LEAK_FOUND]


def _why_not_judged(rows: Sequence[Finding]) -> str:
    pictures = [record.pictures for row in rows for record in row.records]
    if not rows:
        return "No attack has finished."
    if not any(map(has_run, rows)):
        return "No attack could be run on this update."
    if all(map(labels_only, rows)):
        return "The private labels are not known here, so those that were restored cannot be compared with them."
    if all(one.originals is None for one in pictures):
        return f"The private {noun(rows)}s are not known here, so what came back cannot be compared with them."
    if any(row.measured(Identification.name) for row in rows):
        return (
            f"These results are of a version that did not yet judge {noun(rows)} by {noun(rows)}; run the audit again."
        )
    if any(one.measured for row in rows for one in row.measurements.values() if one.metric.serves is not Kind.LABELS):
        return f"There was no crowd of other {noun(rows)}s to pick the private ones from."
    return f"No attack returned {space_of(rows).one}."
