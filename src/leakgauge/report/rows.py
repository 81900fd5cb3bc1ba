"""Private rows of a table, or texts, and below each what came back of it, column by column or token by token."""

from __future__ import annotations

import csv
import difflib
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
from leakgauge.space import TableSpace, TokenSpace


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
    """One private row, or text, with all that came back of it; a text has no columns."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[RowLine, ...]


def row_tables(result: AuditResult) -> list[RowTable]:
    """A table for each private row or text; none where the inputs are neither."""
    records = [record for row in result.rows for record in row.records]
    space = next((record.space for record in records), None)
    if not isinstance(space, TableSpace | TokenSpace):
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


def write_texts(space: TokenSpace, texts: Tensor | None, folder: Path) -> Path:
    """What came back as ``texts.txt``, a line for each, in place of that of an earlier run."""
    path = folder / "texts.txt"
    with atomic_path(path) as temporary:
        lines = (" ".join(space.render(text).split()) for text in (() if texts is None else texts))
        temporary.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def _table(result: AuditResult, space: TableSpace | TokenSpace, number: int, place: Position) -> RowTable:
    shown = best_shown(result)
    records = [record for row in result.rows for record in row.records if record.round == place.round]
    originals = (_row(record.pictures.originals, place) for record in records)
    truth = next((row for row in originals if row is not None), None)
    lines = (
        [] if truth is None else [_line(space, f"Private {space.kind}", "what should have stayed on the device", truth)]
    )
    for finding in shown:
        back = _back(finding.records, place)
        lines.append(_line(space, humanise(finding.defence), found(finding), back, truth, finding.verdict))
    if (control := null_of(shown)) is not None:
        lines.append(_line(space, "Null", f"same attack on {unrelated(result)}", _back(control.nulls, place), truth))
    columns = tuple(column.name for column in space.columns) if isinstance(space, TableSpace) else ()
    return RowTable(f"{space.kind.capitalize()} {number}", columns, tuple(lines))


def _back(records: Iterable[Record], place: Position) -> Tensor | None:
    return next((_row(one.pictures.reconstructions, place) for one in records if one.round == place.round), None)


def _row(rows: Tensor | None, place: Position) -> Tensor | None:
    if rows is None or place.place >= len(rows) or not bool(rows[place.place].isfinite().all()):
        return None
    return rows[place.place]


def _line(
    space: TableSpace | TokenSpace,
    title: str,
    detail: str,
    row: Tensor | None,
    truth: Tensor | None = None,
    verdict: Verdict | None = None,
) -> RowLine:
    if row is None:
        return RowLine(title, detail, verdict, ())
    if isinstance(space, TokenSpace):
        return RowLine(title, detail, verdict, _tokens(space, row, truth))
    right = None if truth is None else CellsRight().cells(space, truth[None], row[None])[0].tolist()
    texts = [text for _, text in space.render(row)]
    cells = (RowCell(text, None if right is None else right[index]) for index, text in enumerate(texts))
    return RowLine(title, detail, verdict, tuple(cells))


def _tokens(space: TokenSpace, text: Tensor, truth: Tensor | None) -> tuple[RowCell, ...]:
    """The tokens of a text, right where they stand in the order of the true ones."""
    own = space.tokens(text)
    right: list[bool | None] = [None if truth is None else False] * len(own)
    if truth is not None:
        for match in difflib.SequenceMatcher(None, own, space.tokens(truth), autojunk=False).get_matching_blocks():
            right[match.a : match.a + match.size] = [True] * match.size
    return tuple(RowCell(space.vocabulary[token], mark) for token, mark in zip(own, right, strict=True))
