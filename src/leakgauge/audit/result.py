"""From records to what may be said: one row per defence and attack, each number beside its null, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from leakgauge.audit.label_verdict import LabelJudgement, judge_labels
from leakgauge.audit.limits import NOTHING_LEAKED, check, exceeding
from leakgauge.audit.record import Record, check_together
from leakgauge.audit.verdict import Judgement, Power, Verdict, judge, of_all
from leakgauge.bounds import Bound, read_bounds
from leakgauge.catalogue import METRICS, describe_metric
from leakgauge.errors import InvalidFile
from leakgauge.files import finite
from leakgauge.metrics import PSNR, Identification, Kind, LabelRecall, Metric, Summary, summarise
from leakgauge.protocol.facts import Fact, Subject
from leakgauge.types import Outcome
from leakgauge.version import VERSION

UNDEFENDED = "none"
"""The name of the absence of a defence."""

RECORDED = "as recorded"
"""What stands in place of a defence where an update was recorded elsewhere, with whatever its client did."""


@dataclass(frozen=True)
class Measurement:
    """One metric of one row: the attack, the same attack on an unrelated update, and for labels a blind guess.

    ``guess`` is the expected mean of labels drawn uniformly over the classes, NaN for metrics of images.
    """

    metric: Metric
    attack: Summary
    null: Summary
    guess: float = math.nan

    @property
    def measured(self) -> bool:
        return self.attack.count > 0

    @property
    def leakage(self) -> float:
        """The mean with the sign that makes more leakier."""
        return self.metric.leakage(self.attack.mean)

    def to_dict(self) -> dict[str, Any]:
        seen, null = self.attack, self.null
        return {
            "measured": self.measured,
            "mean": finite(seen.mean),
            "worst": finite(seen.worst),
            "std": finite(seen.deviation),
            "interval": [finite(seen.low), finite(seen.high)],
            "count": seen.count,
            "null": {"mean": finite(null.mean), "interval": [finite(null.low), finite(null.high)], "count": null.count},
            "guess": finite(self.guess),
            "higher_is_leakier": self.metric.higher_is_leakier,
            "unit": self.metric.unit,
        }


@dataclass(frozen=True)
class Finding:
    """One defence under one attack, over all rounds.

    ``power`` is what the positive control says of the attack, None where there is none; ``bound`` the most that any
    attacker could find under this defence, None where the client's algorithm is not known.
    """

    defence: str
    attack: str
    batch_size: int | None
    rounds: int
    victims: int
    outcome: Outcome
    reason: str
    measurements: Mapping[str, Measurement]
    judgement: Judgement
    assumptions: tuple[Fact, ...]
    facts: Mapping[str, Any]
    seconds: float
    records: tuple[Record, ...] = field(repr=False)
    nulls: tuple[Record, ...] = field(repr=False)
    power: Power | None = None
    bound: Bound | None = None
    cpu_seconds: float = math.nan
    labels: LabelJudgement | None = None

    @property
    def steps(self) -> tuple[int, ...]:
        """Of each attack, by rounds; empty where it has none."""
        return tuple(record.steps for record in self.records if record.steps is not None)

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def leaked(self) -> int:
        """How many private examples leaked, over all rounds."""
        return sum(self.judgement.leaked)

    @property
    def leaks(self) -> tuple[tuple[int, int], ...]:
        """Which private examples leaked: the round and the place in its batch."""
        judged = [(record.round, place) for record in self.records for place in range(len(record.evidence))]
        return tuple(one for one, leaked in zip(judged, self.judgement.leaked) if leaked)

    @property
    def malicious_server(self) -> str | None:
        """What the server did to the model, if it did not send the one it should."""
        said = (fact.detail for fact in self.assumptions if fact.subject is Subject.MALICIOUS_SERVER)
        return next(said, None)

    @property
    def labels_given(self) -> bool:
        return labels_given(self.assumptions)

    @property
    def restored_labels(self) -> bool:
        """Whether the attack named labels that it had not been given."""
        return not self.labels_given and any(record.restored_counts is not None for record in self.records)

    @property
    def labels_leak(self) -> bool | None:
        """Whether labels were read and not guessed; None if that was not judged."""
        return None if self.labels is None else self.labels.verdict.leaks

    def measured(self, name: str) -> Measurement | None:
        """What a metric found out; None where it was not measured or says nothing, as of labels that were given."""
        measurement = self.measurements.get(name)
        if measurement is None or not measurement.measured:
            return None
        given = measurement.metric.serves is Kind.LABELS and self.labels_given
        return None if given else measurement

    def to_dict(self) -> dict[str, Any]:
        return {
            "defence": self.defence,
            "attack": self.attack,
            "batch_size": self.batch_size,
            "rounds": self.rounds,
            "victims": self.victims,
            "crowd": self.records[0].crowd,
            "metrics": {name: one.to_dict() for name, one in self.measurements.items()},
            "labels": [_label_counts(record) for record in self.records] if self.restored_labels else [],
            "labels_leak": self.labels_leak,
            "label_judgement": None if self.labels is None else self.labels.to_dict(),
            "verdict": self.verdict.value,
            "leaked": self.leaked,
            "leaks": [list(one) for one in self.leaks],
            "evidence": list(self.judgement.p),
            "reasons": [one.name.lower() for one in self.judgement.reasons],
            "power": None if self.power is None else asdict(self.power),
            "certificates": [None if one.certificate is None else asdict(one.certificate) for one in self.records],
            "outcome": self.outcome.name.lower(),
            "reason": self.reason,
            "assumptions": [fact.to_dict() for fact in self.assumptions],
            "facts": {name: finite(value) for name, value in self.facts.items()},
            "seconds": round(self.seconds, 3),
            "cpu_seconds": finite(round(self.cpu_seconds, 3)),
            "steps": list(self.steps),
        }


@dataclass(frozen=True, repr=False)
class AuditResult:
    """All rows of an audit, the gravest verdict first within each defence; ``description`` is what reruns it."""

    rows: tuple[Finding, ...]
    description: Mapping[str, Any]
    complete: bool = True

    def __repr__(self) -> str:
        """A line for each defence, as one wants to see it at a prompt: its verdict, and what that rests on."""
        lines = [_line(self[defence]) for defence in dict.fromkeys(row.defence for row in self.rows)]
        return "\n".join([*lines, *([] if self.complete else ["stopped before the end"])])

    def __getitem__(self, defence: str) -> Finding:
        """The row that a defence is judged by."""
        own = [row for row in self.rows if row.defence == defence]
        if not own:
            raise KeyError(defence)
        return decisive(own)

    def judgement(self, defence: str) -> Judgement:
        """What its attacks say together: the gravest of them, where one working control suffices to find nothing."""
        return of_all([row.judgement for row in self.rows if row.defence == defence])

    @property
    def records(self) -> tuple[Record, ...]:
        """Of all rows, without their nulls."""
        return tuple(record for row in self.rows for record in row.records)

    @property
    def seed(self) -> int:
        return int(self.description.get("seed", 0))

    @property
    def bounds(self) -> dict[str, Bound]:
        """The most that any attacker could find, by defence; empty where the client's algorithm is not known."""
        return read_bounds(self.description)

    def to_json(self, command: str = "audit") -> dict[str, Any]:
        return {
            "command": command,
            "version": VERSION,
            "seed": self.seed,
            "complete": self.complete,
            "rows": [row.to_dict() for row in self.rows],
            "bounds": {name: bound.to_dict() for name, bound in self.bounds.items()},
        }

    def exceeding(self, limits: Mapping[str, float]) -> list[str]:
        """A sentence for each row that leaks more than a limit allows; for distances "more" means below the limit."""
        return exceeding(self, limits)

    def check(self, limits: Mapping[str, float] = NOTHING_LEAKED, *, allow_inconclusive: bool = False) -> None:
        """The gate of a test: raise ``LeakFound`` where more leaked than the limits allow, and ``Inconclusive`` where
        that cannot be told."""
        check(self, limits, allow_inconclusive=allow_inconclusive)

    def write_report(self, folder: str | Path, *, redact: bool | None = None) -> Path:
        """Write ``index.html`` into the folder and return its path; ``redact`` keeps private data and what came back
        out of it, None = for recorded rounds."""
        from leakgauge.report.audit_page import write_report

        return write_report(self, Path(folder), redact=redact)


def _line(row: Finding) -> str:
    leaked = f", {row.leaked} of {row.victims} leaked" if row.leaked else ""
    why = "".join(f", {reason.value}" for reason in row.judgement.reasons)
    return f"{row.defence}: {row.verdict.value}{leaked}{why} ({row.attack})"


def decisive(rows: Sequence[Finding]) -> Finding:
    """Of the rows of a defence the first whose judgement is that of all of them."""
    # Not simply the first: one attack may be inconclusive where another one, whose control worked, found nothing.
    judgement = of_all([row.judgement for row in rows])
    return next((row for row in rows if row.judgement is judgement), rows[0])


def summarise_stored(records: Sequence[Record], run: Mapping[str, Any], folder: Path) -> AuditResult:
    """What the records of a run in a folder say; each may be whole and yet not belong to the others."""
    try:
        check_together(records)
        return summarise_records(records, run["description"], complete=len(records) == len(run["keys"]))
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        raise InvalidFile(
            f"The results in {folder} contradict each other; they were damaged or forged, choose another --out folder."
        ) from error


def summarise_records(
    records: Sequence[Record], description: Mapping[str, Any], *, complete: bool = True
) -> AuditResult:
    """Rows in the order of the records' defences, the gravest verdict first within each."""
    defences = list(dict.fromkeys(record.defence for record in records))
    groups = {defence: _by_attack([one for one in records if one.defence == defence]) for defence in defences}
    # Where the undefended client was simulated it is the control of every defence; else each is its own.
    undefended = {
        name: [one for one in group if one.null]
        for name, group in groups.get(UNDEFENDED, {}).items()
        if any(one.control for one in group)
    }
    controls = {name: [one for one in group if one.null] for name, group in groups.get(UNDEFENDED, {}).items()}
    alone = judge(groups.get(UNDEFENDED, {}), controls)
    leaked = {name: judgement.leaked for name, (judgement, _) in alone.items() if judgement.verdict.leaks}
    rows, bounds = [], read_bounds(description)
    for defence, attacks in groups.items():
        own = {name: [one for one in group if one.null] for name, group in attacks.items()}
        judged = judge(attacks, own | undefended, {} if defence == UNDEFENDED else leaked)
        labels = judge_labels(_hidden(attacks), own | controls, recorded=defence == RECORDED)
        bound = bounds.get(defence)
        rows += [
            _finding(group, *judged[name], bound, labels.get(name))
            for name, group in attacks.items()
            if any(not record.null for record in group)
        ]
    rows.sort(key=lambda row: (defences.index(row.defence), _rank(row)))
    return AuditResult(tuple(rows), dict(description), complete)


def _by_attack(records: Sequence[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.attack, []).append(record)
    return groups


def _hidden(attacks: Mapping[str, Sequence[Record]]) -> dict[str, list[Record]]:
    """What names labels that it was not given, nor published with encodings."""
    return {name: [one for one in group if not _published(one.ledger)] for name, group in attacks.items()}


def _published(ledger: Sequence[Fact]) -> bool:
    return labels_given(ledger) or any(fact.subject is Subject.ENCODING_LABELS and fact.disclosed for fact in ledger)


def _finding(
    group: Sequence[Record],
    judgement: Judgement,
    power: Power | None,
    bound: Bound | None,
    labels: LabelJudgement | None,
) -> Finding:
    records = tuple(record for record in group if not record.null)
    nulls = tuple(record for record in group if record.null)
    first = records[0]
    names = dict.fromkeys(name for record in records for name in record.scores)
    # In the order of the catalogue; a score of a metric that is no more has no meaning left.
    measurements = {name: _measure(describe_metric(name), records, nulls) for name in METRICS if name in names}
    return Finding(
        defence=first.defence,
        attack=first.attack,
        batch_size=first.batch_size,
        rounds=len(records),
        victims=sum(record.batch_size or 0 for record in records),
        outcome=first.outcome,
        reason=first.reason,
        measurements=measurements,
        judgement=judgement,
        assumptions=first.ledger,
        facts=first.facts,
        seconds=sum(record.seconds for record in records),
        cpu_seconds=sum(record.cpu_seconds for record in records),
        records=records,
        nulls=nulls,
        power=power,
        bound=bound,
        labels=labels,
    )


def labels_given(ledger: Sequence[Fact]) -> bool:
    return any(fact.subject is Subject.LABELS and fact.disclosed for fact in ledger)


def _measure(metric: Metric, records: Sequence[Record], nulls: Sequence[Record]) -> Measurement:
    return Measurement(
        metric,
        _over(records, metric),
        _over(nulls, metric),
        _guessed(records, metric.name),
    )


def _guessed(records: Sequence[Record], name: str) -> float:
    """The mean of the guesses, each round with the weight it has in the mean of the scores."""
    guesses = [(len(record.scores.get(name, ())), record.label_guess.get(name, math.nan)) for record in records]
    known = [(weight, guess) for weight, guess in guesses if not math.isnan(guess)]
    total = sum(weight for weight, _ in known)
    return sum(weight * guess for weight, guess in known) / total if total else math.nan


def _label_counts(record: Record) -> dict[str, Any]:
    return {"round": record.round, "true": record.true_counts, "restored": record.restored_counts}


def _over(records: Sequence[Record], metric: Metric) -> Summary:
    scores = [score for record in records for score in record.scores.get(metric.name, ())]
    return summarise(torch.tensor(scores, dtype=torch.float64), metric)


def _rank(row: Finding) -> tuple[float, ...]:
    def leak(name: str) -> float:
        measurement = row.measurements.get(name)
        return -measurement.leakage if measurement is not None and measurement.measured else math.inf

    return list(Verdict).index(row.verdict), leak(Identification.name), leak(PSNR.name), leak(LabelRecall.name)
