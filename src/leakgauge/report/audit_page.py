"""One self-contained page: what leaked, what stopped it, the numbers, the assumptions and how to run it again."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from leakgauge.audit.plan import plan_of
from leakgauge.audit.record import Record
from leakgauge.audit.result import UNDEFENDED, AuditResult, Finding, Measurement
from leakgauge.audit.verdict import Verdict, gravest
from leakgauge.catalogue import METRICS, describe_metric
from leakgauge.files import writable_folder, write_text
from leakgauge.metrics import Kind, Metric, PublicFound
from leakgauge.protocol.facts import Fact
from leakgauge.report.bound_curve import bound_curve
from leakgauge.report.brief import in_brief
from leakgauge.report.charts import Axes, figures
from leakgauge.report.headline import headline
from leakgauge.report.judgements import (
    describe_control,
    describe_crowd,
    describe_leaked,
    describe_power,
    explain_doubt,
    show_leaked,
    show_p,
    strength,
)
from leakgauge.report.page import FIRST_COLUMNS, Entry, describe_environment, render_page
from leakgauge.report.pictures import Gallery, Line, aspect_ratio, gallery
from leakgauge.report.redaction import is_redacted
from leakgauge.report.rows import RowLine, RowTable, row_tables
from leakgauge.report.words import (
    NOT_MEASURED,
    assumptions,
    capitalise,
    has_run,
    humanise,
    join,
    labels_only,
    list_unrun,
    noun,
    of_encodings,
    only_labels_leak,
    percent,
    show_hits,
    standing,
    standings,
    unrelated,
)

_SETUP = {
    "model": "Model",
    "dataset": "Dataset",
    "data_root": "Data folder",
    "state": "Weights of the model",
    "train_steps": "Training steps of the model",
    "mode": "Client trains in mode",
    "local_update": "Local update",
    "batch_size": "Private examples per update",
    "rounds": "Rounds",
    "threat_model": "Threat model",
    "budget": "Budget of each attack",
    "steps": "Attack steps",
    "seconds": "Attack seconds",
    "distractors": "Distractors",
    "crowd": "Compared with",
    "weights": "LPIPS weights",
    "seed": "Seed",
}


_NO_TABLE = RowTable("", (), ())


class Redaction(NamedTuple):
    """Whether the file as a whole holds nothing private, and what to say of it."""

    whole: bool
    words: str


_REDACTED = Redaction(
    True,
    "This file holds no private input, no private label and nothing that came back, only blocks of pixels and dots for "
    "words, so that it can be handed on.",
)
_CLEAR = Redaction(False, "on this screen")


def render_audit(result: AuditResult, *, redact: bool | None = None) -> str:
    """The page as text; the same result gives the same text. ``redact`` None is for recorded rounds alone."""
    rows = tuple(filter(has_run, result.rows))
    sentences = (*filter(None, [in_brief(result)]), *headline(result))
    redaction = _REDACTED if is_redacted(result, redact) else _CLEAR
    tables = row_tables(result, redacted=redaction.whole)
    pictures = Gallery([], 0, []) if tables else gallery(result, redacted=redaction.whole)
    metrics, unmeasured = _metrics(rows)
    return render_page(
        "audit.html",
        claim=sentences[0],
        sentences=sentences[1:],
        redaction=redaction,
        tone=_tone(result),
        banner=_interruption(result),
        context=_context(result),
        lines=pictures.lines,
        remarks=pictures.remarks,
        tables=tables,
        titles=_ranked(pictures.lines or next(iter(tables), _NO_TABLE).lines),
        items=pictures.images or len(tables),
        noun=noun(result.rows),
        columns=pictures.images,
        first=FIRST_COLUMNS,
        ratio=aspect_ratio(result),
        truth_known=any(record.pictures.originals is not None for record in result.records),
        labels=figures(result, redacted=redaction.whole),
        metrics=metrics,
        unmeasured=unmeasured,
        rows=[(humanise(row.defence), row, [_cell(row, metric) for metric in metrics], _knew(row)) for row in rows],
        standing=standing,
        verdicts=_verdicts(result),
        curve=bound_curve(result),
        crowd=describe_crowd(result),
        left_out=list_unrun(result),
        ledgers=_ledgers(result.rows),
        distractors=max((record.crowd for record in result.records), default=0),
        chance=_chance(rows),
        curves=_curves(rows),
        from_plan=_from_plan(result),
        command=result.description.get("command"),
        encodings=of_encodings(result),
        unrelated=unrelated(result),
        setup=_setup(result),
        attacks={record.attack: record.attack_repr for record in result.records},
        environment=describe_environment(next((record.environment for record in result.records), {})),
        facts=[", ".join(f"{name} {_fact(value)}" for name, value in row.facts.items()) for row in rows],
        spent=[_time([*row.records]) for row in rows],
        total=_time([record for row in result.rows for record in (*row.records, *row.nulls)]),
    )


def write_report(result: AuditResult, folder: Path, *, redact: bool | None = None) -> Path:
    """``index.html``, and beside it ``plan.json`` if the run came from a plan."""
    writable_folder(folder)
    if _from_plan(result):
        write_text(folder / "plan.json", json.dumps(plan_of(dict(result.description)), indent=2) + "\n")
    page = folder / "index.html"
    write_text(page, render_audit(result, redact=redact))
    return page


def _ranked(lines: Sequence[Line | RowLine]) -> list[tuple[int, str]]:
    """The lines by which the private inputs can be sorted, with their places."""

    def ranked(line: Line | RowLine) -> bool:
        parts = line.tiles if isinstance(line, Line) else (line,)
        return any(part.rank is not None for part in parts)

    return [(place, line.title) for place, line in enumerate(lines) if ranked(line)]


def _knew(row: Finding) -> str:
    return assumptions(row.assumptions) if row.assumptions else ""


def _from_plan(result: AuditResult) -> bool:
    return "dataset" in result.description


def _tone(result: AuditResult) -> Verdict:
    """The verdict that colours the headline: of the undefended update if it was judged, or else the gravest."""
    if only_labels_leak(result):
        return Verdict.LEAKS_PARTLY
    everyone = standings(result)
    judged = [row.verdict for row in everyone if row.defence == UNDEFENDED and row.verdict != Verdict.NOT_JUDGED]
    return gravest(judged or [row.verdict for row in everyone])


def _interruption(result: AuditResult) -> str | None:
    if result.complete:
        return None
    done = sum(len(row.records) + len(row.nulls) for row in result.rows)
    planned = result.description.get("defences", ())
    missing = [humanise(name) for name in planned if name not in {row.defence for row in result.rows}]
    reached = f" Not reached: {', '.join(missing)}." if missing else ""
    return f"Stopped early: {done} attack runs had finished, nulls included; the rest is not in this page.{reached}"


class VerdictLine(NamedTuple):
    """The verdict on one defence and what it rests on, in words."""

    defence: str
    attack: str
    verdict: Verdict
    leaked: str
    said: tuple[str, ...]
    bound: str
    knew: str


def _verdicts(result: AuditResult) -> list[VerdictLine]:
    """For each defence by the attack that decides; of labels alone there is nothing to add to their section."""
    judged = [row for row in standings(result) if row.verdict is not Verdict.NOT_JUDGED]
    return [
        VerdictLine(
            humanise(row.defence),
            row.attack,
            row.verdict,
            show_leaked(row),
            tuple(filter(None, (_said(row), describe_control([row]), describe_power([row])))),
            "" if row.bound is None else row.bound.words,
            _knew(row),
        )
        for row in judged
    ]


def _said(row: Finding) -> str:
    if row.verdict is Verdict.INCONCLUSIVE:
        return f"{capitalise(explain_doubt(row))}."
    if row.verdict.leaks:
        return f"{describe_leaked(row)}."
    p = strength(row)
    return "" if p is None else f"No {noun([row])} fits better than strangers do ({show_p(p)} at the least)."


def _context(result: AuditResult) -> list[str]:
    known = result.description
    victims = max((row.victims for row in result.rows), default=0)
    named = any(row.measured(PublicFound.name) for row in result.rows)
    what = "encoding" if named else f"private {noun(result.rows)}"
    return [
        *([f"{victims} {what}{'' if victims == 1 else 's'}"] if victims else []),
        *([f"dataset {known['dataset']}"] if _from_plan(result) else []),
        *([f"model {known['model']}"] if "model" in known else []),
        *([f"attacker {known['threat_model']}".replace("_", " ")] if "threat_model" in known else []),
    ]


def _metrics(rows: Sequence[Finding]) -> tuple[list[Metric], str]:
    """Those that have a number, in the order of the catalogue, and in words which others were asked for."""
    found = [describe_metric(name) for name in METRICS if any(name in row.measurements for row in rows)]
    if rows and all(map(labels_only, rows)):
        found = [metric for metric in found if metric.serves is Kind.LABELS]
    measured = [metric for metric in found if any(row.measured(metric.name) for row in rows)]
    given = any(row.labels_given for row in rows)
    missing = [metric.title for metric in found if metric not in measured if not (_of_labels(metric) and given)]
    said = [f"{capitalise(NOT_MEASURED)}: {join(missing)}."] if missing else []
    if given and any(map(_of_labels, found)) and not any(map(_of_labels, measured)):
        said.append("Labels were given to the attacker, so that nothing was restored of them.")
    return measured, " ".join(said)


def _of_labels(metric: Metric) -> bool:
    return metric.serves is Kind.LABELS


def _cell(row: Finding, metric: Metric) -> Entry:
    if _of_labels(metric) and row.labels_given:
        return Entry("given to the attacker")
    if (measurement := row.measured(metric.name)) is None:
        return Entry(NOT_MEASURED)
    return _proportion(measurement, row.victims) if metric.binary else _average(measurement)


def _proportion(measurement: Measurement, victims: int) -> Entry:
    seen, null = measurement.attack, measurement.null
    details = [
        ("95 % interval", percent(seen.low, seen.high)),
        ("null", show_hits(null) if null.count else NOT_MEASURED),
    ]
    if not math.isnan(measurement.guess):
        details.append(("guess", f"{measurement.guess * seen.count:.1f} of {seen.count}"))
    if seen.count < victims:
        details.insert(0, (NOT_MEASURED, f"{victims - seen.count}"))
    return Entry(show_hits(seen), tuple(details))


def _average(measurement: Measurement) -> Entry:
    seen, null, metric = measurement.attack, measurement.null, measurement.metric

    def number(score: float) -> str:
        return f"{score:.{metric.digits}f}"

    missing = "needs 2 rounds" if metric.per_batch else "needs 2 examples"
    details = [
        ("worst", number(seen.worst)),
        ("95 % interval", missing if math.isnan(seen.low) else f"{number(seen.low)} to {number(seen.high)}"),
        ("null", number(null.mean) if null.count else NOT_MEASURED),
    ]
    if not math.isnan(measurement.guess):
        details.append(("guess", number(measurement.guess)))
    return Entry(metric.show(seen.mean), tuple(details))


def _ledgers(rows: Sequence[Finding]) -> dict[tuple[Fact, ...], list[str]]:
    """Each distinct list of assumptions, the defence's own name taken out, with the defences it holds for."""
    ledgers: dict[tuple[Fact, ...], list[str]] = {}
    for row in rows:
        facts = tuple(replace(fact, about="") for fact in row.assumptions)
        names = ledgers.setdefault(facts, [])
        if facts and humanise(row.defence) not in names:
            names.append(humanise(row.defence))
    return {facts: names for facts, names in ledgers.items() if facts}


def _chance(rows: Sequence[Finding]) -> str | None:
    chances = [record.chance for row in rows for record in row.records if not math.isnan(record.chance)]
    return f"{100 * max(chances):.1f} %" if chances else None


def _curves(rows: Sequence[Finding]) -> list[dict[str, Any]]:
    traces: dict[int, list[Tensor]] = {}
    for index, row in enumerate(rows):
        found = (record.pictures.loss_trace for record in row.records)
        traces[index] = [trace for trace in found if trace is not None and trace.ndim == 1 and len(trace) > 1]
    axes = Axes.around([trace for own in traces.values() for trace in own])
    return [
        {
            "title": humanise(rows[index].defence),
            "attack": rows[index].attack,
            "axes": axes,
            "lines": [axes.points(trace) for trace in own],
        }
        for index, own in traces.items()
        if own
    ]


def _setup(result: AuditResult) -> list[tuple[str, str]]:
    known = result.description
    setup = [(label, str(known[name])) for name, label in _SETUP.items() if known.get(name) is not None]
    if "accuracy" in known:
        measured = isinstance(known["accuracy"], float) and math.isfinite(known["accuracy"])
        setup.insert(1, ("Accuracy of the model", f"{100 * known['accuracy']:.1f} %" if measured else NOT_MEASURED))
    if classes := list(known.get("class_names", ())):
        more = f" and {len(classes) - 20} more" if len(classes) > 20 else ""
        setup.append(("Classes", ", ".join(map(str, classes[:20])) + more))
    return setup


def _time(records: Sequence[Record]) -> str:
    """On both clocks; records of earlier versions have one."""
    work = sum(record.cpu_seconds for record in records)
    said = "" if math.isnan(work) else f"{work:.1f} CPU s, "
    return f"{said}{sum(record.seconds for record in records):.1f} s on the wall"


def _fact(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
