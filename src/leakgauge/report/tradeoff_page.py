"""One self-contained page of a trade-off, in the style of an audit's."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined

from leakgauge.files import writable_folder, write_text
from leakgauge.fingerprint import environment as surroundings
from leakgauge.protocol.threat_model import THREAT_MODELS
from leakgauge.report.scatter import scatter
from leakgauge.report.terminal import NOT_MEASURED, humanise, percent
from leakgauge.report.tradeoff_words import METRICS, counted, in_words, number, remarks, sentence
from leakgauge.tradeoff.plan import Condition, TradeoffPlan
from leakgauge.tradeoff.result import Cell, Tradeoff, TradeoffRow, cheapest
from leakgauge.tradeoff.training import DELTA, Trained


class Words(NamedTuple):
    """One cell in words: its value, and the smaller print below."""

    value: str
    details: tuple[tuple[str, str], ...] = ()
    verdict: str = ""
    note: str | None = None


def render(result: Tradeoff) -> str:
    """The page as text; the same result gives the same text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_read("tradeoff.html"))
    best = cheapest(result) if result.limit and result.complete else None
    front = {point.row.defence for point in result.front()}
    return template.render(
        style=_style(),
        claim=sentence(result),
        remarks=remarks(result),
        tone="no_leak_found" if best is not None else "leaks" if result.complete and result.limit else "not_judged",
        banner=None if result.complete else "Stopped early; cells that had not finished are shown as not measured.",
        context=_context(result),
        plot=scatter(result),
        conditions=[(in_words(condition), condition.unaware) for condition in result.conditions],
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
            for name, value in result.description.items()
            if name not in ("defences", "version")
        ],
        trainings=[row.utility.to_dict() for row in result.rows if row.utility is not None][:1],
        environment=surroundings(),
    )


def write_page(result: Tradeoff, folder: Path) -> Path:
    """``index.html``, with ``tradeoff.json`` (all numbers) and ``plan.json`` (what reruns it) beside it."""
    writable_folder(folder)
    plan = {name: value for name, value in result.description.items() if name in TradeoffPlan.__dataclass_fields__}
    write_text(folder / "plan.json", json.dumps(plan, indent=2) + "\n")
    numbers = result.to_dict() | {
        "sentence": sentence(result),
        "remarks": remarks(result),
        "command_line": _command(plan),
        "environment": surroundings(),
        "description": dict(result.description),
    }
    write_text(folder / "tradeoff.json", json.dumps(numbers, indent=2, allow_nan=False) + "\n")
    page = folder / "index.html"
    write_text(page, render(result))
    return page


def _command(plan: Mapping[str, Any]) -> str:
    """What runs it again: the plan beside the page, or nothing but the seed for the embedded example."""
    seed = int(plan.get("seed", 0))
    return (
        f"leakgauge tradeoff --seed {seed}"
        if plan == TradeoffPlan(seed=seed).words()
        else "leakgauge tradeoff plan.json"
    )


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _style() -> str:
    """The style of the audit's page, which has its home there."""
    found = re.search(r"<style>(.*?)</style>", _read("template.html"), re.DOTALL)
    assert found is not None
    return found[1]


def _context(result: Tradeoff) -> list[str]:
    known = result.description
    return [f"{name} {known[name]}" for name in ("dataset", "model", "recipe") if name in known]


def _accuracy(row: TradeoffRow) -> Words:
    if row.utility is None or row.accuracy is None:
        diverged = row.utility is not None and row.utility.diverged
        return Words("diverged" if diverged else NOT_MEASURED, note=row.untrained)
    seen = row.accuracy
    details = (
        ("95 % interval", percent(seen.low, seen.high)),
        ("images", str(seen.count)),
        ("guess", f"{100 * row.utility.guess:.1f} %"),
        *_privacy(row.utility),
    )
    return Words(f"{100 * seen.mean:.1f} %", details)


def _time(row: TradeoffRow) -> Words:
    if row.utility is None or row.utility.overhead.count == 0:
        return Words(NOT_MEASURED)
    spent = row.utility.overhead
    details = (
        ("quartiles", f"{spent.low:.2f}–{spent.high:.2f}"),
        ("a step", f"{1000 * row.utility.seconds_per_step:.1f} ms"),
    )
    return Words(f"×{spent.median:.2f}", details)


def _cell(result: Tradeoff, row: TradeoffRow, condition: Condition) -> Words:
    cell = row.cells.get(condition)
    if cell is None:
        return Words(NOT_MEASURED, note=row.refused.get(condition))
    identified = cell.measured("identification")
    details = []
    if identified is not None:
        details.append(("95 % interval", percent(identified.seen.low, identified.seen.high)))
        details.append(("null", counted(identified.null) if identified.null.count else NOT_MEASURED))
    if (comfort := result.false_comfort(row, condition)) is not None and comfort > 0:
        details.append(("false comfort", f"{comfort:.0%}"))
    details.append(("attack", cell.attack))
    value = NOT_MEASURED if identified is None else counted(identified.seen)
    return Words(value, tuple(details), cell.verdict.name.lower())


def _privacy(trained: Trained) -> tuple[tuple[str, str], ...]:
    pairs = (("epsilon", trained.epsilon), ("of a round", trained.epsilon_of_a_round))
    return tuple(
        (name, "needs Opacus" if math.isnan(value) else f"{value:.3g} at delta {DELTA:g}")
        for name, value in pairs
        if value is not None
    )


def _quality(result: Tradeoff, metric: str) -> list[list[Words]]:
    """One metric of images, for each row and condition."""
    return [[_average(row.cells.get(condition), metric) for condition in result.conditions] for row in result.rows]


def _qualities(result: Tradeoff) -> dict[str, list[list[Words]] | None]:
    """Every metric but identification, which has the main table; None where none of it was measured."""
    cells = [cell for row in result.rows for cell in row.cells.values()]
    names = dict.fromkeys((*METRICS, *(name for cell in cells for name in cell.spreads)))
    return {
        METRICS.get(name, name): _quality(result, name) if any(cell.measured(name) for cell in cells) else None
        for name in names
        if name != "identification"
    }


def _average(cell: Cell | None, metric: str) -> Words:
    spread = None if cell is None else cell.measured(metric)
    if spread is None:
        return Words(NOT_MEASURED)
    details = (
        ("best", number(spread, spread.seen.worst)),
        ("sd", "needs 2 images" if math.isnan(spread.std) else number(spread, spread.std)),
        ("null", number(spread, spread.null.mean) if spread.null.count else NOT_MEASURED),
    )
    return Words(number(spread, spread.seen.mean), details)


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
