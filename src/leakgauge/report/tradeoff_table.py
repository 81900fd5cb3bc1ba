"""A trade-off on a console: a heading for each defence, its cost and its leakage below."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from leakgauge.audit.result import Measurement
from leakgauge.audit.verdict import Verdict
from leakgauge.bounds import Bound
from leakgauge.metrics import Identification, Summary
from leakgauge.report.audit_table import DIGITS, not_measured
from leakgauge.report.judgements import show_percent
from leakgauge.report.tradeoff_words import describe_condition
from leakgauge.report.words import NOT_MEASURED, humanise, percent, show_hits
from leakgauge.tradeoff.plan import Condition
from leakgauge.tradeoff.result import Cell, Tradeoff, TradeoffRow, cheapest

_WIDEST, _GAP = 80, 2
"""Of any console: what does not fit stands below."""
_CAPTION = (
    "accuracy with its 95 % interval; time per step against undefended steps; identified and likeness, and below the "
    "nulls of both; ? inconclusive; ≤ the most that any attacker could identify in one round, where there is a bound"
)

Line = Sequence[Text]


def tradeoff_table(result: Tradeoff) -> RenderableType:
    """The rows of a trade-off, for any console."""
    return TradeoffTable(result)


@dataclass(frozen=True)
class TradeoffTable:
    """A cell of leakage shows how many were identified and how well, above the null of both.

    Conditions under which no defence was measured have no column, and are named below.
    """

    result: Tradeoff

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        result, room = self.result, min(_WIDEST, options.max_width)
        seen = [one for one in result.conditions if any(_is_measured(row.cells.get(one)) for row in result.rows)]
        heading = [Text("accuracy", "bold"), Text("time", "bold"), *map(_condition, seen)]
        lines = {row.defence: [*_cost(row), *_leakages(row, seen)] for row in result.rows}
        widths = [_width([line[place] for line in (heading, *lines.values())]) for place in range(len(heading))]
        best = cheapest(result) if result.complete else None
        yield from _lay_out(heading, widths, room)
        yield Text("─" * min(room, sum(widths) + _GAP * len(widths)), "dim")
        for row in result.rows:
            yield Text(f"\n{humanise(row.defence)}", "bold green" if row is best else "bold")
            yield from _lay_out(lines[row.defence], widths, room)
        missing = [describe_condition(one) for one in result.conditions if one not in seen]
        below = [f"Not measured: {'; '.join(missing)}."] if missing else []
        yield Text("\n" + "\n".join([*below, _CAPTION]), "dim")


def _lay_out(line: Line, widths: Sequence[int], room: int) -> list[RenderableType]:
    """Side by side as far as they fit, and the rest below."""
    rows: list[list[int]] = [[]]
    for place, width in enumerate(widths):
        if rows[-1] and sum(widths[one] + _GAP for one in rows[-1]) + width > room - _GAP:
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


def _leakages(row: TradeoffRow, conditions: Sequence[Condition]) -> list[Text]:
    return [_leakage(row.cells.get(condition), row.bounds.get(condition)) for condition in conditions]


def _shown(cell: Cell | None) -> list[Measurement]:
    """Identification and the first metric of likeness."""
    found = {} if cell is None else cell.measurements
    graded = next((name for name, measurement in found.items() if not measurement.metric.binary), "")
    return [found[name] for name in (Identification.name, graded) if name in found]


def _is_measured(cell: Cell | None) -> bool:
    return any(measurement.measured for measurement in _shown(cell))


def _leakage(cell: Cell | None, bound: Bound | None) -> Text:
    if cell is None or not _is_measured(cell):
        return not_measured()
    shown = _shown(cell)
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
