"""One self-contained page of a trade-off, in the style of an audit's."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leakgauge.audit.verdict import Verdict
from leakgauge.catalogue import METRICS
from leakgauge.defences import DELTA
from leakgauge.files import writable_folder, write_text
from leakgauge.fingerprint import environment as surroundings
from leakgauge.metrics import Identification
from leakgauge.protocol.threat_model import THREAT_MODELS
from leakgauge.report.bound_curve import bound_curve
from leakgauge.report.page import Entry, describe_environment, render_page
from leakgauge.report.scatter import scatter
from leakgauge.report.tradeoff_words import describe_condition, remarks, sentence, show_at_most, show_score
from leakgauge.report.words import NOT_MEASURED, humanise, percent, show_hits
from leakgauge.tradeoff.plan import Condition, TradeoffPlan
from leakgauge.tradeoff.result import Cell, Tradeoff, TradeoffRow, cheapest
from leakgauge.training import Trained


def render_tradeoff(result: Tradeoff) -> str:
    """The page as text; the same result gives the same text."""
    best = cheapest(result) if result.limit and result.complete else None
    front = {point.row.defence for point in result.front()}
    known = result.description
    judged = Verdict.LEAKS if result.complete and result.limit else Verdict.NOT_JUDGED
    return render_page(
        "tradeoff.html",
        claim=sentence(result),
        sentences=remarks(result),
        tone=judged if best is None else Verdict.NO_LEAK_FOUND,
        caveat=True,
        banner=None if result.complete else "Stopped early; cells that had not finished are shown as not measured.",
        context=[f"{name} {known[name]}" for name in ("dataset", "model", "recipe") if name in known],
        plot=scatter(result),
        curve=bound_curve(result),
        conditions=[(describe_condition(condition), condition.unaware) for condition in result.conditions],
        rows=[
            (
                humanise(row.defence),
                [
                    *(["cheapest"] if row is best else []),
                    *(["on the front"] if row.defence in front else []),
                    *(["within the limit"] if result.limit and result.within(row) else []),
                ],
                _accuracy(row),
                _time(row),
                [_cell(result, row, condition) for condition in result.conditions],
            )
            for row in result.rows
        ],
        qualities=_qualities(result),
        attackers=[
            (condition.threat_model.replace("_", " "), THREAT_MODELS[condition.threat_model].source)
            for condition in result.conditions
            if condition.batch_size == result.conditions[0].batch_size
        ],
        setup=[
            (name.replace("_", " "), json.dumps(value) if isinstance(value, dict) else _plain(value))
            for name, value in known.items()
            if name not in ("defences", "version")
        ],
        trainings=[row.utility.to_dict() for row in result.rows if row.utility is not None][:1],
        environment=describe_environment(surroundings()),
    )


def write_tradeoff(result: Tradeoff, folder: Path, given: Path = Path("plan.json")) -> Path:
    """``index.html``, with ``tradeoff.json`` (all numbers) and ``plan.json`` (what reruns it) beside it.

    ``given`` is the file that the plan was read from.
    """
    writable_folder(folder)
    plan = {name: value for name, value in result.description.items() if name in TradeoffPlan.__dataclass_fields__}
    write_text(folder / "plan.json", json.dumps(plan, indent=2) + "\n")
    numbers = result.to_dict() | {
        "sentence": sentence(result),
        "remarks": remarks(result),
        "command_line": _command(plan, given),
        "environment": surroundings(),
        "description": dict(result.description),
    }
    write_text(folder / "tradeoff.json", json.dumps(numbers, indent=2, allow_nan=False) + "\n")
    page = folder / "index.html"
    write_text(page, render_tradeoff(result))
    return page


def _command(plan: Mapping[str, Any], given: Path) -> str:
    """What runs it again: the file of the plan, or nothing but the seed for the embedded example."""
    seed = int(plan.get("seed", 0))
    embedded = plan == TradeoffPlan(seed=seed).words()
    return f"leakgauge tradeoff {'' if embedded else f'{given.as_posix()} '}--seed {seed}"


def _accuracy(row: TradeoffRow) -> Entry:
    if row.utility is None or row.accuracy is None:
        diverged = row.utility is not None and row.utility.diverged
        return Entry("diverged" if diverged else NOT_MEASURED, note=row.untrained)
    seen = row.accuracy
    details = (
        ("95 % interval", percent(seen.low, seen.high)),
        ("images", str(seen.count)),
        ("guess", f"{100 * row.utility.guess:.1f} %"),
        *_privacy(row.utility),
        *(() if row.over_training is None else (("at most over the training", show_at_most(row.over_training)),)),
    )
    return Entry(f"{100 * seen.mean:.1f} %", details)


def _time(row: TradeoffRow) -> Entry:
    if row.utility is None or row.utility.overhead.count == 0:
        return Entry(NOT_MEASURED)
    spent = row.utility.overhead
    details = (
        ("quartiles", f"{spent.low:.2f}–{spent.high:.2f}"),
        ("a step", f"{1000 * row.utility.seconds_per_step:.1f} ms"),
    )
    return Entry(f"×{spent.median:.2f}", details)


def _cell(result: Tradeoff, row: TradeoffRow, condition: Condition) -> Entry:
    cell = row.cells.get(condition)
    if cell is None:
        return Entry(NOT_MEASURED, note=row.refused.get(condition))
    identified = cell.measured(Identification.name)
    details = [("at most", show_at_most(row.bounds.get(condition)))]
    if identified is not None:
        details.append(("95 % interval", percent(identified.attack.low, identified.attack.high)))
        details.append(("null", show_hits(identified.null) if identified.null.count else NOT_MEASURED))
    control = cell.control
    details.append(("control", NOT_MEASURED if control is None else f"{control.seen} of {control.tried}"))
    if (comfort := result.false_comfort(row, condition)) is not None and comfort > 0:
        details.append(("false comfort", f"{100 * comfort:.0f} %"))
    details.append(("attack", cell.attack))
    value = NOT_MEASURED if identified is None else show_hits(identified.attack)
    return Entry(value, tuple(details), cell.verdict)


def _privacy(trained: Trained) -> tuple[tuple[str, str], ...]:
    pairs = (("epsilon", trained.epsilon), ("of a round", trained.epsilon_of_a_round))
    return tuple(
        (name, "needs Opacus" if math.isnan(value) else f"{value:.3g} at delta {DELTA:g}")
        for name, value in pairs
        if value is not None
    )


def _qualities(result: Tradeoff) -> dict[str, list[list[Entry]] | None]:
    """Every metric but identification, for each row and condition; None where none of it was measured."""
    cells = [cell for row in result.rows for cell in row.cells.values()]
    return {
        metric.title: [
            [_average(row.cells.get(condition), name) for condition in result.conditions] for row in result.rows
        ]
        if any(cell.measured(name) for cell in cells)
        else None
        for name, metric in METRICS.items()
        if not metric.binary and any(name in cell.measurements for cell in cells)
    }


def _average(cell: Cell | None, metric: str) -> Entry:
    measurement = None if cell is None else cell.measured(metric)
    if measurement is None:
        return Entry(NOT_MEASURED)
    seen, null = measurement.attack, measurement.null
    details = (
        ("best", show_score(measurement, seen.worst)),
        ("sd", "needs 2 images" if math.isnan(seen.deviation) else show_score(measurement, seen.deviation)),
        ("null", show_score(measurement, null.mean) if null.count else NOT_MEASURED),
    )
    return Entry(show_score(measurement, seen.mean), details)


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
