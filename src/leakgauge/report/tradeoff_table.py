"""A trade-off on a console of 80 columns: a heading for each defence, its cost and its leakage below."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from leakgauge.audit.result import Measurement
from leakgauge.audit.verdict import Verdict
from leakgauge.bounds import Bound
from leakgauge.metrics import Identification, Summary
from leakgauge.report.audit_table import DIGITS, not_measured
from leakgauge.report.judgements import show_percent
from leakgauge.report.words import NOT_MEASURED, humanise, percent, show_hits
from leakgauge.tradeoff.plan import Condition
from leakgauge.tradeoff.result import Cell, Tradeoff, TradeoffRow, cheapest

_WIDTH, _GAP = 80, 2
"""Of any console: what does not fit stands below."""
_CAPTION = """accuracy with its 95 % interval; time per step against undefended steps;
identified and likeness, and below the nulls of both; ? inconclusive;
≤ the most that any attacker could identify in one round, where there is a bound"""

Line = Sequence[Text]


def tradeoff_table(result: Tradeoff) -> RenderableType:
    """A cell of leakage shows how many were identified and how well, above the null of both."""
    heading = [Text("accuracy", "bold"), Text("time", "bold"), *map(_condition, result.conditions)]
    lines = {row.defence: [*_cost(row), *_leakages(result, row)] for row in result.rows}
    widths = [_width([line[place] for line in (heading, *lines.values())]) for place in range(len(heading))]
    best = cheapest(result) if result.complete else None
    rule = Text("─" * min(_WIDTH, sum(widths) + _GAP * len(widths)), "dim")
    parts: list[RenderableType] = [*_lay_out(heading, widths), rule]
    for row in result.rows:
        parts.append(Text(f"\n{humanise(row.defence)}", "bold green" if row is best else "bold"))
        parts += _lay_out(lines[row.defence], widths)
    return Group(*parts, Text(f"\n{_CAPTION}", "dim"))


def _lay_out(line: Line, widths: Sequence[int]) -> list[RenderableType]:
    """Side by side as far as they fit, and the rest below."""
    rows: list[list[int]] = [[]]
    for place, width in enumerate(widths):
        if rows[-1] and sum(widths[one] + _GAP for one in rows[-1]) + width > _WIDTH - _GAP:
            rows.append([])
        rows[-1].append(place)
    grids: list[RenderableType] = []
    for places in rows:
        grid = Table(box=None, show_header=False, padding=(0, 0, 0, _GAP))
        for place in places:
            grid.add_column(width=widths[place], justify="right")
        grid.add_row(*(line[place] for place in places))
        grids.append(grid)
    return grids


def _width(cells: Line) -> int:
    return max(len(part) for cell in cells for part in cell.plain.split("\n"))


def _condition(condition: Condition) -> Text:
    attacker = condition.threat_model.replace("_", "\n")
    return Text(f"{attacker}\nbatch {condition.batch_size}", "bold")


def _cost(row: TradeoffRow) -> tuple[Text, Text]:
    time = Text("–" if math.isinf(row.overhead) else f"×{row.overhead:.2f}")
    if row.accuracy is None:
        diverged = row.utility is not None and row.utility.diverged
        return Text("diverged", "dim") if diverged else not_measured(), time
    interval = percent(row.accuracy.low, row.accuracy.high)
    return Text(f"{100 * row.accuracy.mean:.1f} %\n").append(interval, "dim"), time


def _leakages(result: Tradeoff, row: TradeoffRow) -> list[Text]:
    return [_leakage(row.cells.get(condition), row.bounds.get(condition)) for condition in result.conditions]


def _leakage(cell: Cell | None, bound: Bound | None) -> Text:
    found = {} if cell is None else cell.measurements
    graded = next((name for name, measurement in found.items() if not measurement.metric.binary), "")
    identified, likeness = (found.get(name) for name in (Identification.name, graded))
    shown = [measurement for measurement in (identified, likeness) if measurement is not None]
    if cell is None or not any(measurement.measured for measurement in shown):
        return not_measured()
    text = Text().append("? " if cell.verdict is Verdict.INCONCLUSIVE else "", "bold magenta")
    text.append("\n".join(_mean(measurement, measurement.attack) for measurement in shown))
    for measurement in shown:
        if measurement.measured and measurement.null.count:
            text.append(f"\n{_mean(measurement, measurement.null)}", "dim")
    if bound is not None and bound.at_most is not None:
        text.append(f"\n≤ {show_percent(bound.at_most)}", "bold")
    return text


def _mean(measurement: Measurement, summary: Summary) -> str:
    if not summary.count:
        return NOT_MEASURED
    metric = measurement.metric
    return show_hits(summary).replace(" of ", "/") if metric.binary else metric.show(summary.mean, digits=DIGITS)
