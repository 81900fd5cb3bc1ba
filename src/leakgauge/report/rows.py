"""Private rows of a table, and below each what came back of it, column by column."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from leakgauge.audit.record import Record
from leakgauge.audit.result import AuditResult
from leakgauge.audit.verdict import Verdict
from leakgauge.files import atomic_path
from leakgauge.metrics import CellsRight
from leakgauge.report.pictures import Position, best_shown, found, null_of, positions
from leakgauge.report.words import humanise, unrelated
from leakgauge.space import TableSpace


class RowCell(NamedTuple):
    """A value in words; ``right`` is None where there is nothing to compare it with."""

    text: str
    right: bool | None = None


class RowLine(NamedTuple):
    """A private row, or what came back of it; no cells where nothing did."""

    title: str
    detail: str
    verdict: Verdict | None
    cells: tuple[RowCell, ...]


class RowTable(NamedTuple):
    """One private row with all that came back of it."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[RowLine, ...]


def row_tables(result: AuditResult) -> list[RowTable]:
    """A table for each private row; none where the inputs are no rows."""
    records = [record for row in result.rows for record in row.records]
    space = next((record.space for record in records), None)
    if not isinstance(space, TableSpace):
        return []
    return [_table(result, space, number, place) for number, place in enumerate(positions(result), start=1)]


def write_rows(space: TableSpace, rows: Tensor | None, folder: Path) -> Path:
    """What came back as ``rows.csv``, a header and a line for each row, in place of that of an earlier run."""
    path = folder / "rows.csv"
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in space.columns])
        writer.writerows([text for _, text in space.render(row)] for row in (() if rows is None else rows))
    return path


def _table(result: AuditResult, space: TableSpace, number: int, place: Position) -> RowTable:
    shown = best_shown(result)
    records = [record for row in result.rows for record in row.records if record.round == place.round]
    originals = (_row(record.pictures.originals, place) for record in records)
    truth = next((row for row in originals if row is not None), None)
    lines = [] if truth is None else [_line(space, "Private row", "what should have stayed on the device", truth)]
    for finding in shown:
        back = _back(finding.records, place)
        lines.append(_line(space, humanise(finding.defence), found(finding), back, truth, finding.verdict))
    if (control := null_of(shown)) is not None:
        lines.append(_line(space, "Null", f"same attack on {unrelated(result)}", _back(control.nulls, place), truth))
    return RowTable(f"Row {number}", tuple(column.name for column in space.columns), tuple(lines))


def _back(records: Iterable[Record], place: Position) -> Tensor | None:
    return next((_row(one.pictures.reconstructions, place) for one in records if one.round == place.round), None)


def _row(rows: Tensor | None, place: Position) -> Tensor | None:
    if rows is None or place.place >= len(rows) or not bool(rows[place.place].isfinite().all()):
        return None
    return rows[place.place]


def _line(
    space: TableSpace,
    title: str,
    detail: str,
    row: Tensor | None,
    truth: Tensor | None = None,
    verdict: Verdict | None = None,
) -> RowLine:
    if row is None:
        return RowLine(title, detail, verdict, ())
    right = None if truth is None else CellsRight().cells(space, truth[None], row[None])[0].tolist()
    texts = [text for _, text in space.render(row)]
    cells = (RowCell(text, None if right is None else right[index]) for index, text in enumerate(texts))
    return RowLine(title, detail, verdict, tuple(cells))
