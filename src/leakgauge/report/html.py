"""One self-contained page: what leaked, what stopped it, the numbers, the assumptions and how to run it again."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from torch import Tensor

from leakgauge.audit.plan import plan_of
from leakgauge.audit.record import Record
from leakgauge.audit.result import OF_LABELS, AuditResult, Finding, Measurement
from leakgauge.audit.verdict import Verdict, gravest
from leakgauge.files import writable_folder, write_text
from leakgauge.protocol.threat_model import Fact
from leakgauge.report.labels import NAMES, figures
from leakgauge.report.pictures import Axes, aspect_ratio, gallery
from leakgauge.report.terminal import (
    NOT_MEASURED,
    UNDEFENDED,
    headline,
    humanise,
    labels_only,
    left_out,
    only_labels_leak,
    percent,
    ran,
    standing,
    standings,
)

FIRST_COLUMNS = 8
"""So many images a line are shown at once; the others are folded away."""

_METRICS = {
    "identification": "Identified",
    "psnr": "PSNR",
    "ssim": "SSIM",
    "lpips_alex": "LPIPS (AlexNet)",
    "lpips_vgg": "LPIPS (VGG)",
    **NAMES,
}
_PROPORTIONS = ("identification", "label_recall")
_SETUP = {
    "model": "Model",
    "dataset": "Dataset",
    "data_root": "Data folder",
    "state": "Weights of the model",
    "train_steps": "Training steps of the model",
    "mode": "Client trains in mode",
    "local_update": "Local update",
    "batch_size": "Private images per update",
    "rounds": "Rounds",
    "threat_model": "Threat model",
    "budget": "Budget of each attack",
    "steps": "Attack steps",
    "seconds": "Attack seconds",
    "distractors": "Distractors",
    "crowd": "Distractors",
    "weights": "LPIPS weights",
    "seed": "Seed",
}


class Cell(NamedTuple):
    """One metric of one row in words: its value, and the smaller print below."""

    value: str
    details: tuple[tuple[str, str], ...] = ()


def render(result: AuditResult) -> str:
    """The page as text; the same result gives the same text."""
    template = page_template("template.html")
    rows = tuple(filter(ran, result.rows))
    sentences = headline(result)
    lines = gallery(result)
    metrics = _metrics(rows)
    return template.render(
        claim=sentences[0],
        sentences=sentences[1:],
        tone=_tone(result),
        banner=_interruption(result),
        context=_context(result),
        lines=lines,
        columns=max((len(line.tiles) for line in lines), default=0),
        first=FIRST_COLUMNS,
        ratio=aspect_ratio(result),
        truth_known=any(record.pictures.originals is not None for row in result.rows for record in row.records),
        labels=figures(result),
        metrics=metrics,
        rows=[(humanise(row.defence), row, [_cell(row, name) for name in metrics]) for row in rows],
        standing=standing,
        left_out=left_out(result),
        ledgers=_ledgers(result.rows),
        distractors=max((record.crowd for row in result.rows for record in row.records), default=0),
        chance=_chance(rows),
        curves=_curves(rows),
        from_plan=_from_plan(result),
        setup=_setup(result),
        attacks={record.attack: record.attack_repr for row in result.rows for record in row.records},
        environment=dict(next((record.environment for row in result.rows for record in row.records), {})),
        facts=[", ".join(f"{name} {_fact(value)}" for name, value in row.facts.items()) for row in rows],
        seconds=sum(record.seconds for row in result.rows for record in (*row.records, *row.nulls)),
    )


def page_template(name: str) -> Template:
    """One of the templates of this package; another page extends ``template.html``."""
    folder = resources.files(__package__)
    return Environment(
        loader=FunctionLoader(lambda wanted: folder.joinpath(wanted).read_text("utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)


def write_report(result: AuditResult, folder: Path) -> Path:
    """``index.html``, and beside it ``plan.json`` if the run came from a plan."""
    writable_folder(folder)
    if _from_plan(result):
        write_text(folder / "plan.json", json.dumps(plan_of(dict(result.description)), indent=2) + "\n")
    page = folder / "index.html"
    write_text(page, render(result))
    return page


def _from_plan(result: AuditResult) -> bool:
    return "dataset" in result.description


def _tone(result: AuditResult) -> Verdict:
    """The verdict that colours the headline: of the undefended update if it was judged, or else the gravest."""
    if only_labels_leak(result):
        return Verdict.LEAKS_PARTLY
    everyone = standings(result)
    judged = [row.verdict for row in everyone if row.defence in UNDEFENDED and row.verdict != Verdict.NOT_JUDGED]
    return gravest(judged or [row.verdict for row in everyone])


def _interruption(result: AuditResult) -> str | None:
    if result.complete:
        return None
    done = sum(len(row.records) + len(row.nulls) for row in result.rows)
    planned = [result.description.get(name, ()) for name in ("defences", "attacks")]
    total = 2 * len(planned[0]) * len(planned[1]) * int(result.description.get("rounds", 1))
    missing = [humanise(name) for name in planned[0] if name not in {row.defence for row in result.rows}]
    counted = f"{done} of {total}" if total > done else f"{done}"
    reached = f" Not reached: {', '.join(missing)}." if missing else ""
    return f"Stopped early: {counted} attack runs had finished, nulls included; the rest is not in this page.{reached}"


def _context(result: AuditResult) -> list[str]:
    known = result.description
    victims = max((row.victims for row in result.rows), default=0)
    return [
        *([f"{victims} private image{'' if victims == 1 else 's'}"] if victims else []),
        *([f"dataset {known['dataset']}"] if _from_plan(result) else []),
        *([f"model {known['model']}"] if "model" in known else []),
        *([f"attacker {known['threat_model']}".replace("_", " ")] if "threat_model" in known else []),
    ]


def _metrics(rows: Sequence[Finding]) -> dict[str, tuple[str, str]]:
    """Label and direction of each metric: those we know in our order, then any others."""
    found = {name: one for row in rows for name, one in row.measurements.items()}
    if rows and all(map(labels_only, rows)):
        found = {name: one for name, one in found.items() if name in OF_LABELS}
    for name in OF_LABELS[1:]:  # beside recall only where there is something to say
        if name in found and not any(row.measured(name) for row in rows):
            del found[name]
    return {
        name: (_METRICS.get(name, name), "higher is leakier" if found[name].higher_is_leakier else "lower is leakier")
        for name in dict.fromkeys((*(name for name in _METRICS if name in found), *found))
    }


def _cell(row: Finding, name: str) -> Cell:
    measurement = row.measurements.get(name)
    if name in OF_LABELS and row.labels_given:
        return Cell("given to the attacker")
    if measurement is None or not measurement.measured:
        return Cell(NOT_MEASURED)
    return _proportion(measurement, row.victims) if name in _PROPORTIONS else _average(measurement)


def _proportion(measurement: Measurement, victims: int) -> Cell:
    seen, null = measurement.attack, measurement.null
    details = [
        ("95 % interval", percent(seen.low, seen.high)),
        ("null", f"{round(null.mean * null.count)} of {null.count}" if null.count else NOT_MEASURED),
    ]
    if not math.isnan(measurement.guess):
        details.append(("guess", f"{measurement.guess * seen.count:.1f} of {seen.count}"))
    if seen.count < victims:
        details.insert(0, (NOT_MEASURED, f"{victims - seen.count}"))
    return Cell(f"{round(seen.mean * seen.count)} of {seen.count}", tuple(details))


def _average(measurement: Measurement) -> Cell:
    seen, null, digits = measurement.attack, measurement.null, 1 if measurement.unit == "dB" else 3
    missing = "needs 2 rounds" if measurement.metric in OF_LABELS else "needs 2 images"
    interval = missing if math.isnan(seen.low) else f"{seen.low:.{digits}f} to {seen.high:.{digits}f}"
    details = [
        ("worst", f"{seen.worst:.{digits}f}"),
        ("95 % interval", interval),
        ("null", f"{null.mean:.{digits}f}" if null.count else NOT_MEASURED),
    ]
    if not math.isnan(measurement.guess):
        details.append(("guess", f"{measurement.guess:.{digits}f}"))
    return Cell(f"{seen.mean:.{digits}f} {measurement.unit}".strip(), tuple(details))


def _ledgers(rows: Sequence[Finding]) -> dict[tuple[Fact, ...], list[str]]:
    """Each distinct list of assumptions, the defence's own name taken out, with the defences it holds for."""
    ledgers: dict[tuple[Fact, ...], list[str]] = {}
    for row in rows:
        facts = tuple(fact._replace(detail=fact.detail.removeprefix(f"{row.defence}: ")) for fact in row.assumptions)
        names = ledgers.setdefault(facts, [])
        if facts and humanise(row.defence) not in names:
            names.append(humanise(row.defence))
    return {facts: names for facts, names in ledgers.items() if facts}


def _chance(rows: Sequence[Finding]) -> str | None:
    chances = [record.chance for row in rows for record in row.records if not math.isnan(record.chance)]
    return f"{100 * max(chances):.1f} %" if chances else None


def _curves(rows: Sequence[Finding]) -> list[dict[str, Any]]:
    traces = {index: [one for one in map(_trace, row.records) if one is not None] for index, row in enumerate(rows)}
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


def _trace(record: Record) -> Tensor | None:
    trace = record.pictures.loss_trace
    return trace if trace is not None and trace.ndim == 1 and len(trace) > 1 else None


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


def _fact(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
