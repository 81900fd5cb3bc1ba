"""A table for people: in the terminal, and as a sheet of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table as Grid
from rich.text import Text

from leakgauge.report.images import MOST, read_strips, strip, write_strips
from leakgauge.reproduce.result import RowResult, TableResult
from leakgauge.reproduce.standing import in_all
from leakgauge.reproduce.table import Measured, Published, Table


def grid(result: TableResult) -> Grid:
    """The published number beside ours and the null, and the work behind it; made for a console of 100 columns."""
    table, shared = result.table, in_all([row.differs() for row in result.rows])
    notes = [*result.notes, *([f"In every row other than in the paper: {'; '.join(shared)}."] if shared else [])]
    drawn = Grid(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title=f"{table.title} (scale {result.bench.scale})",
        title_justify="left",
        caption=Text("\n".join(f"- {note}" for note in notes), "dim"),
        caption_justify="left",
    )
    drawn.add_column("setting", overflow="fold", min_width=24)
    columns = _columns_of_one(table) if table.shown == 1 else _columns_of_several(result)
    columns |= {"images": _images, "steps": _steps, "seconds": lambda row: f"{row.found.seconds:.3g}"}
    if not any("steps" in row.found.facts for row in result.rows):
        del columns["steps"]
    for name in columns:
        drawn.add_column(name, justify="right")
    for row in result.rows:
        drawn.add_row(_setting(row, shared), *(cell(row) for cell in columns.values()))
    return drawn


_Columns = dict[str, Callable[[RowResult], str]]


def _columns_of_one(table: Table) -> _Columns:
    metric = table.metrics[0]
    columns: _Columns = {
        "published": lambda row: _published(row.row.published),
        f"ours\n({metric})": lambda row: _standing(row, metric, metric, _number(row.found.ours[metric])),
        "null": lambda row: _number(row.found.null.get(metric), nothing="-"),
    }
    if table.best:
        columns[f"best {table.best}\n(null)"] = lambda row: (
            f"{_plain(row.found.ours[metric].best)}\n({_plain(row.found.null[metric].best)})"
        )
    return columns


def _columns_of_several(result: TableResult) -> _Columns:
    """For each metric ours, the published number and the null; what a defence costs, where that was measured."""
    table = result.table
    metrics = table.metrics[: table.shown]
    form = "mean (best, s.d.): " if table.per_image else ""

    def cell(metric: str) -> Callable[[RowResult], str]:
        def joined(row: RowResult) -> str:
            given = row.row.published_of(metric, metrics[0])
            found, best = row.found, table.per_image
            ours = _standing(row, metric, metrics[0], _number(found.ours.get(metric), best=best))
            null = _number(found.null.get(metric), "-", best=best)
            return (",\n" if best else ", ").join((ours, _published(given), null))

        return joined

    costs: _Columns = {"accuracy, time\nours, published": _cost}
    measured = any(row.found.facts.get("utility") is not None for row in result.rows)
    return (costs if measured else {}) | {f"{one}\n{form}ours, published, null": cell(one) for one in metrics}


def write_sheet(result: TableResult, path: Path) -> Path | None:
    """For each row a line of private images above a line of what came back; None if no row has pictures.

    Rows that stand beside the measured ones keep the pictures that they have in this file.
    """
    drawn = {label: one for label, one in read_strips(path).items() if label in result.beside}
    for row in result.rows:
        originals, estimates = row.found.originals, row.found.estimates
        if originals is not None and estimates is not None:
            drawn[row.row.label] = strip(originals[:MOST], estimates[:MOST])
    labels = [row.label for row in result.table.rows if row.label in drawn]
    return write_strips([drawn[label] for label in labels], path, labels)


def _setting(row: RowResult, shared: Sequence[str]) -> Text:
    text, facts = Text(row.row.label), row.found.facts
    if (training := facts.get("training")) is not None:
        share = "" if training["accuracy"] is None else f", accuracy {100 * training['accuracy']:.0f} %"
        how = f"weights of {training['file']}" if "file" in training else f"trained {training['steps']} steps"
        text.append(f"\n{how}{share}", "dim")
    if summary := row.measure.summary():
        text.append(f"\n{summary}", "dim")
    if differs := [one for one in row.differs() if one not in shared]:
        text.append(f"\nother than in the paper: {'; '.join(differs)}", "dim")
    return text


def _standing(row: RowResult, metric: str, first: str, number: str) -> str:
    """Our number, which says where it is no more than its null: it would mean nothing beside a published one."""
    at = row.standings(first).get(metric)
    return f"{at}\n({number})" if at in ("not reached", "at its null, as published") else number


def _images(row: RowResult) -> str:
    return str(max((one.images for one in row.found.ours.values()), default=0))


def _steps(row: RowResult) -> str:
    steps: Sequence[int] | None = row.found.facts.get("steps")
    return "-" if steps is None else "–".join(str(one) for one in dict.fromkeys(steps))


def _cost(row: RowResult) -> str:
    utility: Mapping[str, Any] | None = row.found.facts.get("utility")
    if utility is None:
        return "-"
    accuracy, overhead = utility["accuracy"]["mean"], utility["overhead"]["median"]
    said = "diverged" if utility["diverged"] else "not measured" if accuracy is None else f"{accuracy:.3f}"
    spent = "not measured" if overhead is None else f"×{overhead:.2f}"
    return f"{said}, {spent}\n{_published(row.row.also.get('accuracy'))}, {_published(row.row.also.get('time'))}"


def _published(value: Published | None) -> str:
    if value is None:
        return "-"
    if value.mean is None:
        return "not as text"
    if value.best is not None:
        return f"{_plain(value.mean)} ({_plain(value.best)}, {_plain(value.deviation)})"
    spread = "" if value.deviation is None else f" ± {_plain(value.deviation)}"
    return _plain(value.mean) + spread + (" (s.e.)" if value.spread == "standard error" else "")


def _number(value: Measured | None, nothing: str = "not measured", *, best: bool = False) -> str:
    if value is None or value.mean is None:
        return nothing
    if best:
        return f"{_plain(value.mean)} ({_plain(value.best)}, {_plain(value.deviation)})"
    return _plain(value.mean) + ("" if value.deviation is None else f" ± {_plain(value.deviation)}")


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if abs(value) < 2 else f"{value:.2f}"
