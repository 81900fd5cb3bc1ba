"""What may leak at most: limits on scores and on the number of leaked examples, and the gate made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from leakgauge.audit.verdict import Verdict
from leakgauge.catalogue import describe_metric
from leakgauge.errors import Inconclusive, InvalidCase, LeakFound
from leakgauge.metrics import LabelRecall

if TYPE_CHECKING:
    from leakgauge.audit.result import AuditResult, Finding

LEAKED = "leaked"
"""The limit that is no metric's: how many private examples may leak."""

NOTHING_LEAKED: Mapping[str, float] = MappingProxyType({LEAKED: 0.0})


def check_limit(name: str, limit: float) -> None:
    """Refuse a limit on a metric that does not exist, or one that nothing could exceed."""
    if name != LEAKED:
        describe_metric(name)
    if not math.isfinite(limit):
        raise InvalidCase(f"The limit of {name!r} must be a finite number, got {limit}; such as {name}=0.5.")


def exceeding(result: AuditResult, limits: Mapping[str, float]) -> list[str]:
    """A sentence for each row that leaks more than a limit allows; for distances "more" means below the limit."""
    exceeded: list[str] = []
    for name, limit in limits.items():
        check_limit(name, limit)
        exceeded += _too_many(result, limit) if name == LEAKED else _too_high(result, name, limit)
    return exceeded


def check(result: AuditResult, limits: Mapping[str, float], *, allow_inconclusive: bool) -> None:
    """Raise ``LeakFound`` where a limit is exceeded, and ``Inconclusive`` where whether it is cannot be told."""
    from leakgauge.report.judgements import inconclusive_sentences

    if not result.complete:
        raise Inconclusive(["the audit was stopped early; run it again to resume."])
    if exceeded := exceeding(result, limits):
        raise LeakFound(exceeded)
    if not allow_inconclusive and (sentences := inconclusive_sentences(result)):
        raise Inconclusive(sentences)


def _too_many(result: AuditResult, limit: float) -> Iterator[str]:
    for defence in dict.fromkeys(row.defence for row in result.rows):
        counts = [(row, found) for row in result.rows if row.defence == defence and (found := _count(row)) is not None]
        if not counts:
            raise InvalidCase(
                f"Whether anything leaked was not judged for the defence {defence!r}, so {LEAKED!r} cannot be a limit; "
                "add what it needs (another attack, the truth, references) or drop the limit."
            )
        for row, (leaked, tried, what) in counts:
            if leaked > limit:
                counted = f"{leaked} of {tried} {what}leaked"
                yield f"{row.defence}: {counted}, the limit is {limit:g} (attack {row.attack})"


def _count(row: Finding) -> tuple[int, int, str] | None:
    """How many examples leaked, of how many; of an attack after labels alone, how many labels; None = not judged."""
    if row.verdict is not Verdict.NOT_JUDGED:
        return row.leaked, len(row.judgement.leaked), ""
    recall = row.measured(LabelRecall.name)
    if row.labels is None or row.labels.verdict is Verdict.NOT_JUDGED or recall is None:
        return None
    restored = round(recall.attack.mean * recall.attack.count)
    return restored if row.labels.verdict.leaks else 0, recall.attack.count, "labels "


def _too_high(result: AuditResult, name: str, limit: float) -> Iterator[str]:
    judged = [(row, found) for row in result.rows if (found := row.measured(name)) is not None]
    # Never a silent pass: what no attack measured has not been shown to stay below the limit.
    for defence in dict.fromkeys(row.defence for row in result.rows):
        if defence not in {row.defence for row, _ in judged}:
            raise InvalidCase(
                f"The metric {name!r} was not measured for the defence {defence!r}, so it cannot be a limit; "
                "add what it needs (another attack, distractors, the truth, hidden labels, LPIPS weights) or "
                "drop the limit."
            )
    for row, measurement in judged:
        if measurement.leakage > measurement.metric.leakage(limit):
            mean = measurement.attack.mean
            yield f"{row.defence}: {name} is {mean:.3g}, the limit is {limit:g} (attack {row.attack})"
