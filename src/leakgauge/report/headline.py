"""What an audit found, in sentences: the headline of page and console."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leakgauge.audit.result import RECORDED, UNDEFENDED, AuditResult, Finding
from leakgauge.audit.verdict import Verdict
from leakgauge.metrics import Kind, PublicFound
from leakgauge.report.words import (
    any_labels_leak,
    capitalise,
    count_identified,
    count_restored,
    count_victims,
    has_run,
    join,
    label_recall,
    labels_only,
    noun,
    of_encodings,
    only_labels_leak,
    short_names,
    show_identified,
    show_private,
    show_restored,
    space_of,
    standings,
)

Names = Callable[[Sequence[Finding]], str]
"""How a sentence calls the defences of some rows."""


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
    if of_encodings(result):
        return (*_of_encodings(everyone), *of_labels)
    called = short_names([row.defence for row in everyone])

    def names(rows: Sequence[Finding]) -> str:
        return join([called[row.defence] for row in rows])

    bare = next((row for row in everyone if row.defence == UNDEFENDED), None)
    defended = [row for row in everyone if row.defence != UNDEFENDED]
    leak = f"{noun(everyone)} leak" if any_labels_leak(result) else "leak"
    if all(row.defence == RECORDED for row in everyone):
        sentences = [_of_recorded(row, leak) for row in everyone]
    elif bare is None or bare.verdict is Verdict.NOT_JUDGED:
        sentences = _without_comparison(defended, names, leak, audited=bare is not None)
    elif bare.verdict.leaks:
        sentences = _of_a_leak(bare, defended, names)
    else:
        sentences = _of_no_leak(defended, names, leak)
    if unjudged := [row for row in defended if row.verdict is Verdict.NOT_JUDGED]:
        sentences.append(f"{capitalise(names(unjudged))} {'was' if len(unjudged) == 1 else 'were'} not judged.")
    if by_chance := [row for row in everyone if row.verdict is Verdict.NO_LEAK_FOUND and count_identified(row)]:
        whose = {row.defence: "" if row.defence == RECORDED else f" with {called[row.defence]}" for row in by_chance}
        shares = join([f"{show_identified(row)}{whose[row.defence]}" for row in by_chance])
        sentences.append(f"Still picked out, but no more often than chance or the null explains: {shares}.")
    servers = dict.fromkeys(row.malicious_server for row in everyone if row.verdict.leaks)
    if dishonest := [server for server in servers if server is not None]:
        sentences.append(f"This rests on a malicious server: {join(dishonest)}.")
    return (*of_labels, *sentences) if only_labels_leak(result) else (*sentences, *of_labels)


def _of_encodings(rows: Sequence[Finding]) -> list[str]:
    sentences = []
    for row in rows:
        named = row.measured(PublicFound.name)
        part = "part of their data: " if row.verdict is Verdict.LEAKS_PARTLY else ""
        what = show_private(row) if named is None else f"the private part of {show_identified(row, of='encoding')}"
        sentences.append(
            f"These encodings gave away {part}{what}." if row.verdict.leaks else "No leak was found in these encodings."
        )
        if named is not None:
            null = f" (null {100 * named.null.mean:.0f} %)" if named.null.count else ""
            sentences.append(f"The attack named {100 * named.attack.mean:.0f} % of the public images in them{null}.")
    return sentences


def _of_recorded(row: Finding, leak: str) -> str:
    part = "part of its data: " if row.verdict is Verdict.LEAKS_PARTLY else ""
    gave = f"This recorded update gave away {part}{show_private(row)}."
    return gave if row.verdict.leaks else f"No {leak} was found in this recorded update."


def _of_a_leak(bare: Finding, defended: Sequence[Finding], names: Names) -> list[str]:
    part = "part of its data: " if bare.verdict is Verdict.LEAKS_PARTLY else ""
    sentences = [f"This update gave away {part}{show_private(bare)}."]
    leaking, clean = _leaking(defended), _clean(defended)
    lessened = [
        row
        for row in leaking
        if count_identified(row) / count_victims(row) < count_identified(bare) / count_victims(bare)
    ]
    useless = [row for row in leaking if row not in lessened]
    if clean:
        sentences.append(f"What stopped it: {names(clean)}.")
    elif leaking:
        sentences.append("No defence that was tried stopped it.")
    elif not defended:
        sentences.append("No defence was tried.")
    if lessened:
        shares = join([show_identified(row) for row in lessened])
        sentences.append(f"{capitalise(names(lessened))} lessened it but did not stop it ({shares}).")
    if useless:
        sentences.append(f"{capitalise(names(useless))} did not help.")
    return sentences


def _of_no_leak(defended: Sequence[Finding], names: Names, leak: str) -> list[str]:
    if leaking := _leaking(defended):
        shares = join([f"{show_private(row)} with {names([row])}" for row in leaking])
        return [
            f"No {leak} was found without a defence, yet this update gave away {shares}.",
            "Read both as what these attacks happened to find, not as the work of a defence.",
        ]
    if _clean(defended):
        return [f"No {leak} was found, undefended or defended."]
    return [f"No {leak} was found in the undefended update.", *([] if defended else ["No defence was tried."])]


def _without_comparison(defended: Sequence[Finding], names: Names, leak: str, *, audited: bool) -> list[str]:
    undefended = f"The undefended update was not {'judged' if audited else 'audited'}"
    sentences = [f"With {names([row])}, this update gave away {show_private(row)}." for row in _leaking(defended)]
    if clean := _clean(defended):
        sentences.append(f"No {leak} was found with {names(clean)}.")
        return [*sentences, f"{undefended}, so this does not show that a defence stopped anything."]
    return [*sentences, f"{undefended}, so whether a defence helped is unknown."]


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
    explained = [row for row in ordered if not row.labels_leak]
    if not leaking:
        said = f"Labels were restored no more often than guessing or the null explains: {shares(explained)} {guess}."
        return [said]
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
    return sentences


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
    if any(one.measured for row in rows for one in row.measurements.values() if one.metric.serves is not Kind.LABELS):
        return f"There was no crowd of other {noun(rows)}s to pick the private ones from."
    return f"No attack returned {space_of(rows).one}."
