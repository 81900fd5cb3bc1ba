"""An audit in words: the headline, and what its verdicts and defences are called, for page and console."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from leakgauge.audit.result import RECORDED, UNDEFENDED, AuditResult, Finding, Measurement
from leakgauge.audit.verdict import Verdict, gravest
from leakgauge.config import split_chain
from leakgauge.metrics import Identification, Kind, LabelRecall, PublicFound, Summary
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Outcome

NOT_MEASURED = "not measured"

_DID_NOT_RUN = {Outcome.NOT_APPLICABLE: "not applicable", Outcome.MISSING_KNOWLEDGE: "missing knowledge"}
_PEOPLE = {"gaussian": "Gaussian", "laplace": "Laplace", "mixup": "MixUp", "instahide": "InstaHide", "dpsgd": "DP-SGD"}

Names = Callable[[Sequence[Finding]], str]
"""How a sentence calls the defences of some rows."""


def standings(result: AuditResult) -> list[Finding]:
    """For each defence the row that it is judged by, in the order of the rows."""
    defences = dict.fromkeys(row.defence for row in result.rows)
    return [leakiest([row for row in result.rows if row.defence == defence]) for defence in defences]


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
    called = _short_names([row.defence for row in everyone])

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


def humanise(defence: str, *, options: bool = True) -> str:
    """A defence as a person would write it.

    >>> humanise("clipping:max_norm=1+gaussian_noise:std=0.01")
    'Clipping (max_norm 1) + Gaussian noise (std 0.01)'
    >>> humanise("clipping:max_norm=1+pruning:keep=0.1", options=False)
    'Clipping + pruning'
    """
    return capitalise(_plain_name(defence, options=options))


def leakiest(rows: Sequence[Finding]) -> Finding:
    """The row with the gravest verdict, the first of several."""
    # Not simply the first row: one attack may identify more only because its null does, while another one leaks.
    return next(row for row in rows if row.verdict is gravest(one.verdict for one in rows))


def any_labels_leak(result: AuditResult) -> bool:
    return any(row.labels_leak for row in result.rows)


def only_labels_leak(result: AuditResult) -> bool:
    """Whether labels came back and no image did."""
    return any_labels_leak(result) and not any(row.verdict.leaks for row in result.rows)


def standing(row: Finding) -> tuple[str, Verdict]:
    """The verdict in words, and the one that colours it; what restored labels alone is judged by them."""
    if row.verdict is Verdict.NOT_JUDGED and row.labels_leak:
        return "labels leak", Verdict.LEAKS_PARTLY
    return row.verdict.value, row.verdict


def has_run(row: Finding) -> bool:
    """Whether the attack had anything to work on."""
    return row.outcome not in _DID_NOT_RUN or any(one.measured for one in row.measurements.values())


def list_unrun(result: AuditResult) -> list[str]:
    """One line for each attack that could not run and why; defences are named only where it ran with others."""
    reasons: dict[str, list[str]] = {}
    for row in result.rows:
        if not has_run(row):
            reasons.setdefault(f"{row.attack}: {_DID_NOT_RUN[row.outcome]}: {row.reason}", []).append(row.defence)
    everywhere = len({row.defence for row in result.rows})
    return [
        line if len(defences) == everywhere else f"{line} (with {join([_plain_name(one) for one in defences])})"
        for line, defences in reasons.items()
    ]


def space_of(rows: Iterable[Finding]) -> InputSpace:
    """What the private inputs are; where no record says so, images."""
    spaces = (record.space for row in rows for record in row.records)
    return next((space for space in spaces if space is not None), ImageSpace(1, 1, 1))


def noun(rows: Iterable[Finding]) -> str:
    """What a private input is called."""
    return space_of(rows).kind


def count_identified(row: Finding) -> int:
    """How many private inputs the attack picked out of the crowd."""
    measurement = row.measured(Identification.name)
    return 0 if measurement is None else round(measurement.attack.mean * measurement.attack.count)


def count_victims(row: Finding) -> int:
    """How many private inputs there were to pick out."""
    measurement = row.measurements.get(Identification.name)
    return max(row.victims, measurement.attack.count if measurement else 0)


def show_private(row: Finding) -> str:
    """How many private inputs were picked out, of how many, and what they are."""
    return show_identified(row, of=f"private {noun([row])}")


def show_identified(row: Finding, *, of: str = "") -> str:
    """How many private inputs were picked out, of how many."""
    counted = f"{count_identified(row)} of {count_victims(row)}"
    return f"{counted} {of}{'' if count_victims(row) == 1 else 's'}" if of else counted


def show_hits(summary: Summary) -> str:
    """How many examples of those measured score 1."""
    return f"{round(summary.mean * summary.count)} of {summary.count}"


def percent(low: float, high: float) -> str:
    """A proportion's interval.

    >>> percent(0.5101, 1.0)
    '51–100 %'
    """
    return f"{100 * low:.0f}–{100 * high:.0f} %"


def of_encodings(result: AuditResult) -> bool:
    """Whether published encodings were attacked, and not an update."""
    return any(fact.subject is Subject.ENCODINGS for row in result.rows for fact in row.assumptions)


def unrelated(result: AuditResult) -> str:
    """What the null attacks."""
    return "unrelated encodings" if of_encodings(result) else "an unrelated update"


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
    called = _short_names([row.defence for row in ordered])
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


def label_recall(row: Finding) -> Measurement | None:
    return row.measured(LabelRecall.name) if row.restored_labels else None


def count_restored(row: Finding, *, guess: bool = False) -> float:
    """How many labels were restored, or would be by guessing."""
    found = label_recall(row)
    return 0.0 if found is None else (found.guess if guess else found.attack.mean) * found.attack.count


def show_restored(row: Finding) -> str:
    found = label_recall(row)
    return f"{count_restored(row):.0f} of {0 if found is None else found.attack.count}"


def labels_only(row: Finding) -> bool:
    """Whether the attack was after labels alone, so that there is no image to show or to judge."""
    return row.restored_labels and all(
        record.pictures.originals is None and record.pictures.reconstructions is None for record in row.records
    )


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


def _plain_name(defence: str, *, options: bool = True) -> str:
    if defence == UNDEFENDED:
        return "no defence"
    links = []
    for part in split_chain(defence):
        name, _, settings = part.partition(":")
        words = " ".join(_PEOPLE.get(word, word) for word in name.split("_"))
        shown = f" ({settings.replace('=', ' ').replace(',', ', ')})" if settings and options else ""
        links.append(words + shown)
    return " + ".join(links)


def _short_names(defences: Sequence[str]) -> dict[str, str]:
    """Without settings, unless two defences would then be called the same."""
    short = {defence: _plain_name(defence, options=False) for defence in defences}
    return {
        defence: name if list(short.values()).count(name) == 1 else _plain_name(defence)
        for defence, name in short.items()
    }


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def join(words: Sequence[str]) -> str:
    """
    >>> join(["one", "two", "three"])
    'one, two and three'
    """
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def assumptions(ledger: Sequence[Fact]) -> str:
    """The ledger in one sentence.

    >>> from leakgauge.protocol.facts import Subject
    >>> assumptions([Fact(Subject.MODEL, True, ""), Fact(Subject.UPDATE, True, ""), Fact(Subject.LABELS, False, "")])
    'Assumed known: model, update; hidden: labels.'
    """
    known = ", ".join(fact.name for fact in ledger if fact.disclosed)
    hidden = ", ".join(fact.name for fact in ledger if not fact.disclosed)
    return f"Assumed known: {known}" + (f"; hidden: {hidden}." if hidden else ".")
