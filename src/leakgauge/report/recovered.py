"""What came back of a recorded round, as files that one can open: beside the page, unless that is redacted."""

from __future__ import annotations

from pathlib import Path

from leakgauge.audit.result import AuditResult
from leakgauge.errors import InvalidFile
from leakgauge.report.images import write_images
from leakgauge.report.redaction import is_recorded, is_redacted
from leakgauge.report.rows import write_rows, write_texts
from leakgauge.space import TableSpace, TokenSpace

RECOVERED = "recovered"
"""The folder: images as PNG, rows as ``rows.csv`` or texts as ``texts.txt``."""


def write_recovered(result: AuditResult, folder: Path, *, redact: bool | None = None) -> Path | None:
    """The files in place of those of an earlier run; none, and None, where private data is kept out of the page."""
    if not is_recorded(result):
        return None
    inside = folder / RECOVERED
    if inside.is_symlink():  # who sent the folder would say where it is written
        raise InvalidFile(f"{inside} is a link, and what came back is written into the folder itself; remove the link.")
    _clear(inside)
    if is_redacted(result, redact) or not came_back(result):
        return None
    inside.mkdir(parents=True, exist_ok=True)
    for record in (record for row in result.rows for record in row.records):
        if isinstance(record.space, TableSpace):
            write_rows(record.space, record.pictures.reconstructions, inside)
        elif isinstance(record.space, TokenSpace):
            write_texts(record.space, record.pictures.reconstructions, inside)
        else:
            write_images(record.pictures.reconstructions, inside)
    return inside


def came_back(result: AuditResult) -> bool:
    """Whether there is anything to show: of labels alone, inputs are not kept."""
    return any(record.pictures.reconstructions is not None for record in result.records)


def redaction_sentence(folder: Path, recovered: Path | None) -> str:
    """What a reader should know of the folder before it is handed on."""
    if recovered is not None:
        return f"What came back is in {recovered} and on the page, in full: keep the folder as carefully as the data."
    return (
        "The page shows blocks in place of private data and of what came back, and may be handed on; --no-redact shows "
        f"both. The rest of {folder} may not: its tensors hold both in full."
    )


def _clear(folder: Path) -> None:
    """Remove what was written there, and the folder if nothing of somebody else's is in it."""
    if not folder.is_dir():
        return
    for pattern in ("image_[0-9]*.png", "rows.csv", "texts.txt"):
        for path in folder.glob(pattern):
            path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()
