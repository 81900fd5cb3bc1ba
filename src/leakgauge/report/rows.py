"""Private rows of a table, or texts, and below each what came back of it, column by column or token by token."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from leakgauge.audit.record import Record
from leakgauge.audit.result import AuditResult
from leakgauge.audit.verdict import Verdict
from leakgauge.files import atomic_path
from leakgauge.metrics import CellsRight
from leakgauge.report.pictures import Position, best_shown, found, null_of, positions, ranks
from leakgauge.report.redaction import DOTS
from leakgauge.report.words import assumptions, humanise, unrelated
from leakgauge.space import TableSpace, TokenSpace


class RowCell(NamedTuple):
    """A value in words; ``right`` is None where there is nothing to compare it with."""

    text: str
    right: bool | None = None


class RowLine(NamedTuple):
    """A private row, or what came back of it; no cells where nothing did. ``rank`` is its place among those of its
    defence, the leakiest first."""

    title: str
    detail: str
    verdict: Verdict | None
    cells: tuple[RowCell, ...]
    rank: int | None = None
    leaked: bool = False
    knew: str = ""


class RowTable(NamedTuple):
    """One private row, or text, with all that came back of it; a text has no columns."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[RowLine, ...]

    def redacted(self) -> RowTable:
        """With dots for every value: which came back right is all that is left."""
        lines = (line._replace(cells=tuple(cell._replace(text=DOTS) for cell in line.cells)) for line in self.lines)
        return self._replace(lines=tuple(lines))


def row_tables(result: AuditResult, *, redacted: bool = False) -> list[RowTable]:
    """A table for each private row or text; none where the inputs are neither."""
    records = [record for row in result.rows for record in row.records]
    space = next((record.space for record in records), None)
    if not isinstance(space, TableSpace | TokenSpace):
        return []
    places = positions(result)
    shown = best_shown(result)
    order = {row.defence: dict(zip(places, ranks(row, places), strict=True)) for row in shown}
    tables = [_table(result, space, number, place, order) for number, place in enumerate(places, start=1)]
    return [table.redacted() for table in tables] if redacted else tables


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


def _table(
    result: AuditResult,
    space: TableSpace | TokenSpace,
    number: int,
    place: Position,
    order: Mapping[str, Mapping[Position, int]],
) -> RowTable:
    shown = best_shown(result)
    records = [record for row in result.rows for record in row.records if record.round == place.round]
    originals = (_row(record.pictures.originals, place) for record in records)
    truth = next((row for row in originals if row is not None), None)
    lines = (
        [] if truth is None else [_line(space, f"Private {space.kind}", "what should have stayed on the device", truth)]
    )
    for finding in shown:
        back = _back(finding.records, place)
        line = _line(space, humanise(finding.defence), found(finding), back, truth, finding.verdict)
        knew = assumptions(finding.assumptions) if finding.assumptions else ""
        lines.append(line._replace(rank=order[finding.defence][place], leaked=place in finding.leaks, knew=knew))
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
