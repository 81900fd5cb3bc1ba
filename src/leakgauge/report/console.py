"""Results on a console: the tables of an audit, of restored labels and of a trade-off."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from leakgauge.audit.record import Record
from leakgauge.audit.result import AuditResult, Finding, Measurement
from leakgauge.audit.verdict import Verdict
from leakgauge.catalogue import METRICS, describe_metric, label_metrics
from leakgauge.config import split_chain
from leakgauge.metrics import Identification, Kind, LabelRecall, Metric, Summary
from leakgauge.report.charts import MOST_CLASSES, choose_classes, label_share, round_name
from leakgauge.report.rows import RowTable, row_tables
from leakgauge.report.words import (
    NOT_MEASURED,
    assumptions,
    count_restored,
    has_run,
    humanise,
    label_recall,
    labels_only,
    list_unrun,
    percent,
    show_hits,
    show_restored,
    space_of,
    standing,
)
from leakgauge.space import InputSpace
from leakgauge.tradeoff.result import Cell, Tradeoff, TradeoffRow, cheapest

_DIGITS = 2  # of a score, as many as a narrow table has room for
_COLOURS = {
    Verdict.LEAKS: "bold red",
    Verdict.LEAKS_PARTLY: "bold yellow",
    Verdict.NO_LEAK_FOUND: "bold green",
    Verdict.NOT_JUDGED: "dim",
}


def audit_table(result: AuditResult) -> Table:
    """The rows side by side, each number above its null; made for a console of 100 columns."""
    rows = list(filter(has_run, result.rows))
    of_labels = any(map(label_recall, rows))
    of_inputs = not (of_labels and all(map(labels_only, rows)))
    inputs = _input_columns(rows, space_of(result.rows)) if of_inputs else ()
    columns = [*inputs, *((_LABELS,) if of_labels else ()), _TIME]
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 1, 0), caption_justify="left")
    grid.add_column("defence", overflow="fold", min_width=14)
    grid.add_column("attack", overflow="fold", min_width=9)
    grid.add_column("verdict", min_width=7)
    for column in columns:
        grid.add_column(column.name, justify=column.justify, min_width=column.width)
    for row in rows:
        words, verdict = standing(row)
        grid.add_row(
            Text(_broken(row.defence)),
            Text(_broken(row.attack)),
            Text("\n".join(words.rsplit(" ", 1)), _COLOURS[verdict]),
            *(column.cell(row) for column in columns),
        )
    if unable := list_unrun(result):
        grid.caption = Text("\n".join(unable), "dim")
    return grid


def audit_tables(result: AuditResult) -> RenderableType:
    """The rows of the audit and, where the inputs are rows themselves, the first private one as it came back."""
    return Group(audit_table(result), *map(_listing, row_tables(result)[:1]))


def _listing(found: RowTable) -> RenderableType:
    """The columns below one another, as they do not fit side by side; what is right stands out.

    The private row, what came back first and the null: more would break words at 80 characters; the page has them all.
    """
    lines = [line for line in found.lines if line.cells]
    shown = [*lines[:2], *(line for line in lines[2:] if line.verdict is None)]
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False)
    grid.add_column(found.title, no_wrap=True)
    for line in shown:
        grid.add_column(Text(line.title), justify="right", overflow="fold")
    for index, name in enumerate(found.columns):
        cells = (line.cells[index] for line in shown)
        grid.add_row(Text(name), *(Text(cell.text, "bold red" if cell.right else "") for cell in cells))
    return grid


def label_tables(result: AuditResult) -> RenderableType:
    """For each recorded round its classes with their counts, the scores of each method, and what was assumed."""
    rounds = sorted({record.round for record in result.records})
    return Group(*(part for number in rounds for part in _tables_of_round(result, number)))


def _tables_of_round(result: AuditResult, number: int) -> Iterable[RenderableType]:
    found = [(row, record) for row in result.rows for record in row.records if record.round == number]
    yield Text(f"\n{round_name(result, found[0][1])}", "bold")
    restored = {row.attack: record.restored_counts for row, record in found if record.restored_counts is not None}
    truth = next((record.true_counts for _, record in found), None)
    if restored:
        yield from _counts(truth, restored)
    if restored and truth is not None:
        yield _scores([(row, record) for row, record in found if record.restored_counts is not None])
    for row, record in found:
        if record.restored_counts is None:
            yield Text(f"{row.attack}: {record.reason}", "dim")
    yield Text(assumptions(found[0][1].ledger), "dim")


def tradeoff_table(result: Tradeoff) -> Table:
    """Rows are defences; a cell of leakage shows how many were identified and how well, above the null of both."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 1, 0), caption_justify="left")
    grid.add_column("defence", overflow="fold", min_width=14)
    grid.add_column("accuracy", justify="right", min_width=8)
    grid.add_column("time", justify="right", min_width=5)
    for condition in result.conditions:
        attacker = condition.threat_model.replace("_", "\n")
        grid.add_column(f"{attacker}\nbatch {condition.batch_size}", justify="right", min_width=8)
    best = cheapest(result) if result.complete else None
    for row in result.rows:
        grid.add_row(
            Text(humanise(row.defence), "bold green" if best is not None and row is best else ""),
            _accuracy(row),
            Text("–" if math.isinf(row.overhead) else f"×{row.overhead:.2f}"),
            *(_leakage(row.cells.get(condition)) for condition in result.conditions),
        )
    grid.caption = Text(
        "accuracy with its 95 % interval; time per step against undefended steps; identified, likeness, and both nulls",
        "dim",
    )
    return grid


def _counts(truth: tuple[int, ...] | None, restored: dict[str, tuple[int, ...]]) -> Iterable[RenderableType]:
    columns = {**({} if truth is None else {"true": truth}), **restored}
    classes = len(next(iter(columns.values())))
    occurring = {one for column in columns.values() for one, count in enumerate(column) if count}
    chosen = [one for one in choose_classes(truth, list(restored.values())) if one in occurring]
    shown = sorted(chosen[:MOST_CLASSES])
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, show_footer=True)
    grid.add_column("class", "all", justify="right")
    for name, column in columns.items():
        grid.add_column(name, str(sum(column)), justify="right")
    for one in shown:
        grid.add_row(str(one), *(str(column[one]) for column in columns.values()))
    yield grid
    if len(shown) < len(chosen):
        yield Text(f"{len(chosen) - len(shown)} further classes are left out; --json has them.", "dim")
    elif len(chosen) < classes:
        yield Text(f"The other {classes - len(chosen)} of {classes} classes do not occur.", "dim")


def _scores(found: Sequence[tuple[Finding, Record]]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False)
    grid.add_column("method")
    metrics = label_metrics().values()
    for metric in metrics:
        grid.add_column(metric.title.replace(" (", "\n("), justify="right")
    for row, record in found:
        null = next((one for one in row.nulls if one.round == record.round), None)
        grid.add_row(row.attack, *(_round_score(metric, record, null) for metric in metrics))
    return grid


def _round_score(metric: Metric, record: Record, null: Record | None) -> Text:
    def mean(scores: Sequence[float]) -> float:
        return sum(scores) / len(scores) if scores else math.nan

    name, count = metric.name, len(record.scores.get(metric.name, ()))
    text = Text(label_share(metric, mean(record.scores.get(name, ())), count))
    text.append(f"\nguess {label_share(metric, record.label_guess.get(name, math.nan), count, expected=True)}", "dim")
    if null is not None:
        text.append(f"\nnull {label_share(metric, mean(null.scores.get(name, ())), count)}", "dim")
    return text


class _Column(NamedTuple):
    name: str
    width: int
    cell: Callable[[Finding], Text]
    justify: Literal["left", "right"] = "right"


def _input_columns(rows: Sequence[Finding], space: InputSpace) -> Iterator[_Column]:
    """The metrics of inputs that were scored, or else could be, and the worst example by the first that is graded."""
    found = {name for row in rows for name in row.measurements}
    described = [describe_metric(name) for name, metric in METRICS.items() if metric.standard and metric.heading]
    of_inputs = [metric for metric in described if metric.serves is not Kind.LABELS]
    shown = [metric for metric in of_inputs if (metric.name in found if found else metric.serves.fits(space))]
    for metric in shown:
        side: Literal["left", "right"] = "left" if metric.binary else "right"
        yield _Column(metric.heading, 10 if metric.binary else 8, partial(_score, metric), side)
    if (graded := next((metric for metric in shown if not metric.binary), None)) is not None:
        yield _Column(f"worst\n{graded.heading}", 7, partial(_worst, graded))


def _score(metric: Metric, row: Finding) -> Text:
    """The mean above its null; of examples that are counted, their number above its interval."""
    if (measurement := row.measured(metric.name)) is None:
        return _not_measured()
    seen, null = measurement.attack, measurement.null
    if metric.binary:
        return Text(show_hits(seen).replace(" of ", "/")).append(f"\n{percent(seen.low, seen.high)}", "dim")
    text = Text(metric.show(seen.mean, digits=_DIGITS))
    shown = metric.show(null.mean, digits=_DIGITS).removesuffix(f" {metric.unit}")
    return text.append(f"\nnull {shown}", "dim") if null.count else text


def _worst(metric: Metric, row: Finding) -> Text:
    found = row.measured(metric.name)
    return _not_measured() if found is None else Text(metric.show(found.attack.worst, digits=_DIGITS))


def _broken(specification: str) -> str:
    """Over several lines, so that no word is cut: each part of a chain, and the settings of each part."""
    return "\n+".join(split_chain(specification)).replace(":", ":\n  ")


def _labels(row: Finding) -> Text:
    if label_recall(row) is None:
        return Text("given", "dim") if row.labels_given else _not_measured()
    return Text(show_restored(row).replace(" of ", "/")).append(f"\nguess {count_restored(row, guess=True):.1f}", "dim")


def _seconds(row: Finding) -> Text:
    return Text(f"{row.seconds:.0f} s" if row.seconds >= 10 else f"{row.seconds:.1f} s")


def _not_measured() -> Text:
    return Text(NOT_MEASURED.replace(" ", "\n"), "dim")


def _accuracy(row: TradeoffRow) -> Text:
    if row.accuracy is None:
        diverged = row.utility is not None and row.utility.diverged
        return Text("diverged", "dim") if diverged else _not_measured()
    return Text(f"{100 * row.accuracy.mean:.1f} %\n").append(percent(row.accuracy.low, row.accuracy.high), "dim")


def _leakage(cell: Cell | None) -> Text:
    found = {} if cell is None else cell.measurements
    graded = next((name for name, measurement in found.items() if not measurement.metric.binary), "")
    identified, likeness = (found.get(name) for name in (Identification.name, graded))
    shown = [measurement for measurement in (identified, likeness) if measurement is not None]
    if not any(measurement.measured for measurement in shown):
        return _not_measured()
    text = Text("\n".join(_mean(measurement, measurement.attack) for measurement in shown))
    for measurement in shown:
        if measurement.measured and measurement.null.count:
            text.append(f"\n{_mean(measurement, measurement.null)}", "dim")
    return text


def _mean(measurement: Measurement, summary: Summary) -> str:
    if not summary.count:
        return NOT_MEASURED
    metric = measurement.metric
    return show_hits(summary).replace(" of ", "/") if metric.binary else metric.show(summary.mean, digits=_DIGITS)


_LABELS = _Column(LabelRecall.heading, 9, _labels)
_TIME = _Column("time", 5, _seconds)
