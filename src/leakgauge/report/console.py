"""Results on a console: the tables of an audit and of restored labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from leakgauge.audit.record import Record
from leakgauge.audit.result import AuditResult, Finding
from leakgauge.catalogue import label_metrics
from leakgauge.metrics import Metric
from leakgauge.report.audit_table import audit_table
from leakgauge.report.charts import MOST_CLASSES, choose_classes, label_share, round_name
from leakgauge.report.grids import FittedTable
from leakgauge.report.rows import RowLine, RowTable, row_tables
from leakgauge.report.words import (
    assumptions,
)


def audit_tables(result: AuditResult) -> RenderableType:
    """The rows of the audit and, where the inputs are rows themselves, the first private one as it came back."""
    return Group(audit_table(result), *map(_listing, row_tables(result)[:1]))


def _listing(found: RowTable) -> RenderableType:
    """The columns below one another, as they do not fit side by side; what is right stands out.

    The private row, what came back first and the null: more would break words at 80 characters; the page has them all.
    """
    lines = [line for line in found.lines if line.cells]
    shown = [*lines[:2], *(line for line in lines[2:] if line.verdict is None)]
    if not found.columns:
        return Group(*(_text(line) for line in shown))
    rows = []
    for index, name in enumerate(found.columns):
        cells = (line.cells[index] for line in shown)
        rows.append([Text(name), *(Text(cell.text, "bold red" if cell.right else "") for cell in cells)])
    titles = [line.title for line in shown]
    return FittedTable((found.title, *titles), rows, frozenset(titles), in_parts=True)


def _text(line: RowLine) -> Text:
    """A text behind its title; what is right stands out."""
    words = (Text(cell.text, "bold red" if cell.right else "") for cell in line.cells)
    return Text.assemble((f"{line.title}:", "dim"), *words)


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


def _counts(truth: tuple[int, ...] | None, restored: dict[str, tuple[int, ...]]) -> Iterable[RenderableType]:
    columns = {**({} if truth is None else {"true": truth}), **restored}
    classes = len(next(iter(columns.values())))
    occurring = {one for column in columns.values() for one, count in enumerate(column) if count}
    chosen = [one for one in choose_classes(truth, list(restored.values())) if one in occurring]
    shown = sorted(chosen[:MOST_CLASSES])
    rows = [[str(one), *(str(column[one]) for column in columns.values())] for one in shown]
    rows.append(["all", *(str(sum(column)) for column in columns.values())])
    cells = [[Text(value, "bold" if row[0] == "all" else "") for value in row] for row in rows]
    yield FittedTable(("class", *columns), cells, frozenset(("class", *columns)), in_parts=True)
    if len(shown) < len(chosen):
        yield Text(f"{len(chosen) - len(shown)} further classes are left out; --json has them.", "dim")
    elif len(chosen) < classes:
        yield Text(f"The other {classes - len(chosen)} of {classes} classes do not occur.", "dim")


def _scores(found: Sequence[tuple[Finding, Record]]) -> FittedTable:
    metrics = label_metrics().values()
    rows = []
    for row, record in found:
        null = next((one for one in row.nulls if one.round == record.round), None)
        rows.append([Text(row.attack), *(_round_score(metric, record, null) for metric in metrics)])
    titles = [metric.title for metric in metrics]
    return FittedTable(("method", *titles), rows, frozenset(titles), in_parts=True)


def _round_score(metric: Metric, record: Record, null: Record | None) -> Text:
    def mean(scores: Sequence[float]) -> float:
        return sum(scores) / len(scores) if scores else math.nan

    name, count = metric.name, len(record.scores.get(metric.name, ()))
    text = Text(label_share(metric, mean(record.scores.get(name, ())), count))
    text.append(f"\nguess {label_share(metric, record.label_guess.get(name, math.nan), count, expected=True)}", "dim")
    if null is not None:
        text.append(f"\nnull {label_share(metric, mean(null.scores.get(name, ())), count)}", "dim")
    return text
