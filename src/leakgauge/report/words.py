"""What the parts of an audit are called, for page and console: defences, verdicts, counts, scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leakgauge.audit.result import UNDEFENDED, AuditResult, Finding, Measurement
from leakgauge.audit.verdict import Verdict
from leakgauge.config import split_chain
from leakgauge.metrics import Identification, LabelRecall, Summary
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Outcome

NOT_MEASURED = "not measured"

_DID_NOT_RUN = {
    Outcome.NOT_APPLICABLE: "not applicable",
    Outcome.MISSING_KNOWLEDGE: "missing knowledge",
    Outcome.FAILED: "failed",
}
_PEOPLE = {"gaussian": "Gaussian", "laplace": "Laplace", "mixup": "MixUp", "instahide": "InstaHide", "dpsgd": "DP-SGD"}


def standings(result: AuditResult) -> list[Finding]:
    """For each defence the row that it is judged by, in the order of the rows."""
    return [result[defence] for defence in dict.fromkeys(row.defence for row in result.rows)]


def humanise(defence: str, *, options: bool = True) -> str:
    """A defence as a person would write it.

    >>> humanise("clipping:max_norm=1+gaussian_noise:std=0.01")
    'Clipping (max_norm 1) + Gaussian noise (std 0.01)'
    >>> humanise("clipping:max_norm=1+pruning:keep=0.1", options=False)
    'Clipping + pruning'
    """
    return capitalise(plain_name(defence, options=options))


def any_labels_leak(result: AuditResult) -> bool:
    return any(row.labels_leak for row in result.rows)


def only_labels_leak(result: AuditResult) -> bool:
    """Whether labels came back and no image did."""
    return any_labels_leak(result) and not any(row.verdict.leaks for row in result.rows)


_OF_LABELS = {
    Verdict.LEAKS: "labels leak",
    Verdict.LEAKS_PARTLY: "labels leak partly",
    Verdict.INCONCLUSIVE: "labels inconclusive",
    Verdict.NO_LEAK_FOUND: "no label leak found",
}


def standing(row: Finding) -> tuple[str, Verdict]:
    """The verdict in words, and the one that colours it; what restored labels alone is judged by them."""
    if row.verdict is Verdict.NOT_JUDGED and row.labels is not None:
        verdict = row.labels.verdict
        return _OF_LABELS[verdict], Verdict.LEAKS_PARTLY if verdict.leaks else verdict
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
        line if len(defences) == everywhere else f"{line} (with {join([plain_name(one) for one in defences])})"
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


def show_identified(row: Finding) -> str:
    """How many private inputs were picked out, of how many."""
    return f"{count_identified(row)} of {count_victims(row)}"


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


def plain_name(defence: str, *, options: bool = True) -> str:
    if defence == UNDEFENDED:
        return "no defence"
    links = []
    for part in split_chain(defence):
        name, _, settings = part.partition(":")
        words = " ".join(_PEOPLE.get(word, word) for word in name.split("_"))
        shown = f" ({settings.replace('=', ' ').replace(',', ', ')})" if settings and options else ""
        links.append(words + shown)
    return " + ".join(links)


def short_names(defences: Sequence[str]) -> dict[str, str]:
    """Without settings, unless two defences would then be called the same."""
    short = {defence: plain_name(defence, options=False) for defence in defences}
    return {
        defence: name if list(short.values()).count(name) == 1 else plain_name(defence)
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
