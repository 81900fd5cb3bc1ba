"""``leakgauge sweep``, and ``status``, ``results`` and ``compare`` of what it keeps."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from leakgauge.cli.exit_codes import ExitCode
from leakgauge.cli.options import JobsOption, JsonFlag, OutOption, RayOption, TrustOption
from leakgauge.cli.output import answers, exit_early, print_json, print_rows, printable, stderr, stdout
from leakgauge.errors import InvalidCase

if TYPE_CHECKING:
    from leakgauge.sweep import Forecasts, SweepGrid

StoreArgument = Annotated[Path, typer.Argument(help="The folder of a sweep or an audit.")]

_SHOWN = ("defence", "attack", "verdict", "leaked", "victims", "identification", "psnr", "label_recall")


def sweep(
    grid: Annotated[Path, typer.Argument(help="A .toml or .json grid: a plan where lists are axes.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is impossible and how long the rest takes; run nothing.")
    ] = False,
    jobs: JobsOption = None,
    ray: RayOption = None,
    out: OutOption = Path("sweep"),
    trust: TrustOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Run every audit of a grid: data, model, training stage, client, threat model, defence, attack, batch size, seeds.

    Stopped, the same command goes on where it was; `leakgauge status` tells from elsewhere how far it is.
    """
    from leakgauge.audit.executors import executor_for
    from leakgauge.audit.store import FolderStore, check_reachable
    from leakgauge.plan_files import load_config
    from leakgauge.progress import Tick
    from leakgauge.report.progress import training_progress
    from leakgauge.sweep import SweepProgress, read_grid, result_rows, run_sweep

    plan = read_grid(load_config(grid, trust=trust))
    if dry_run:
        _forecast(plan, jobs, as_json)
        return
    check_reachable(out)
    with training_progress(stderr(), str(grid), "sweeping") as tick:

        def told(news: SweepProgress) -> None:
            tick(Tick(news.done, news.fraction))

        ended = run_sweep(plan, out, executor_for(jobs, ray), told)
    store = FolderStore.open(out)
    if not ended.complete and not store.runs():
        raise KeyboardInterrupt  # before there was anything to show
    rows = list(result_rows(store))
    if as_json:
        print_json("sweep", None, rows, complete=ended.complete, refused=ended.refused, failed=ended.failed)
    else:
        stdout().print(_table(rows))
        stdout().print(
            f"{ended.done} cases of {ended.cells} cells, {ended.refused} cells refused, {ended.failed} cases failed; "
            f"all of it: leakgauge results {out} --format csv",
            soft_wrap=True,
        )
    if not ended.complete:
        exit_early()
    if ended.failed or not ended.done:
        raise typer.Exit(ExitCode.INCONCLUSIVE)


def _forecast(plan: SweepGrid, jobs: int | None, as_json: bool) -> None:
    from leakgauge.audit.executors import cores
    from leakgauge.report.progress import training_progress
    from leakgauge.sweep import dry_run

    with training_progress(stderr(), "the cells", "trying") as progress:
        found = dry_run(plan, progress)
    rows = [dict(vars(one)) for one in found.impossible]
    side_by_side = jobs or cores()
    if as_json:
        said = {"cells": found.cells, "cases": found.cases, "trainings": found.trainings, "jobs": side_by_side}
        taken = {"seconds": found.seconds, "training_seconds": found.training_seconds}
        print_json("sweep", None, rows, wall=found.wall(side_by_side), **taken, **said)
        return
    for line in _reasons(found):
        stdout().print(line, soft_wrap=True, markup=False)
    stdout().print(_said(found, side_by_side), soft_wrap=True)


def _reasons(found: Forecasts) -> list[str]:
    """One line for each reason, with the first place that it holds at."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in found.impossible:
        part = one.attack if one.attack is not None else "the cell"
        place = one.cell if one.defence is None else f"{one.cell}, {one.defence}"
        groups.setdefault((part, one.reason), []).append(place)
    return [f"impossible: {part}: {reason} ({_some(places)})" for (part, reason), places in groups.items()]


def _some(places: Sequence[str]) -> str:
    return places[0] + (f" and {len(places) - 1} more" if len(places) > 1 else "")


def _said(found: Forecasts, jobs: int) -> str:
    impossible = sum(one.cases for one in found.impossible)
    refused = sum(one.attack is None for one in found.impossible)
    trainings = ""
    if found.trainings:
        several = "s" if found.trainings > 1 else ""
        trainings = f", {_duration(found.training_seconds)} of it for {found.trainings} training{several}"
    return (
        f"{found.cells} cells, {refused} of them impossible; {found.cases} cases, {impossible} of them impossible; the "
        f"others take about {_duration(found.wall(jobs))} with {jobs} at once{trainings}."
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def status(folder: StoreArgument = Path("sweep"), as_json: JsonFlag = False) -> None:
    """Say from another shell how far the run in a folder is."""
    from leakgauge.audit.store import FolderStore
    from leakgauge.sweep import status_of

    found = status_of(FolderStore.open(folder))
    if as_json:
        answers().write(json.dumps({"command": "status"} | found.to_dict(), allow_nan=False) + "\n")
        return
    console = stdout()
    who = f"running (process {found.process} on {found.machine})" if found.alive else "not running"
    state = "complete" if found.complete else "not complete; run the same command to go on" if not found.alive else who
    cells = "" if found.cells is None else f"{found.begun + found.refused} of {found.cells} cells begun, "
    left = "" if found.left is None else f", about {_duration(found.left)} left of what has begun"
    console.print(
        f"{state}: {cells}{found.done} of {found.cases} cases done, {found.failed} failed{left}.", soft_wrap=True
    )
    if found.running:
        shown = [
            {"case": one["case"] + 1, "what": one["title"], "step": one["step"], "share": f"{one['share']:.0%}"}
            | {"loss": "" if one["loss"] is None else f"{one['loss']:.2e}", "for": _duration(one["for"])}
            for one in found.running
        ]
        print_rows(shown, "status", False)


def results(
    folder: StoreArgument = Path("sweep"),
    form: Annotated[str, typer.Option("--format", help="table, csv, json or parquet.")] = "table",
    file: Annotated[Path | None, typer.Option("--to", help="Write there in place of stdout; parquet needs it.")] = None,
) -> None:
    """List what a sweep or an audit found, one row for each cell, defence and attack."""
    from leakgauge.audit.store import FolderStore
    from leakgauge.files import write_text
    from leakgauge.sweep import result_rows

    if form not in ("table", "csv", "json", "parquet"):
        raise InvalidCase(f"There is no format {form!r}; choose from table, csv, json, parquet.")
    rows = list(result_rows(FolderStore.open(folder)))
    if form == "parquet":
        write_parquet(rows, file)
    elif form == "table":
        stdout().print(_table(rows))
    else:
        text = _csv(rows) if form == "csv" else json.dumps({"command": "results", "rows": rows}, allow_nan=False) + "\n"
        if file is None:
            answers().write(text)
        else:
            write_text(file, text)


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return printable(out.getvalue())


def write_parquet(rows: Sequence[dict[str, Any]], file: Path | None) -> None:
    """Flat rows as a table; what is missing in one is empty there."""
    from leakgauge.files import atomic_path

    if file is None:
        raise InvalidCase("A parquet file is not for a terminal; name it with --to results.parquet.")
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InvalidCase(
            "Parquet needs pyarrow; run pip install 'leakgauge[parquet]', or choose --format csv."
        ) from error
    table = pyarrow.table({name: _typed([row.get(name) for row in rows]) for name in _columns(rows)})
    with atomic_path(file) as temporary:
        parquet.write_table(table, temporary)


def _typed(values: Sequence[Any]) -> Any:
    """A column of one type: numbers, which is also what a column without any value would have held, words, or JSON."""
    import pyarrow

    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pyarrow.array(values, pyarrow.float64())
    if kinds <= {int, float} or kinds in ({bool}, {str}):
        return pyarrow.array(values)
    return pyarrow.array([None if value is None else json.dumps(value) for value in values])


def _table(rows: Sequence[dict[str, Any]]) -> Group:
    """The axes and what matters most, and below it why there is no more; the other formats have everything."""
    from leakgauge.report.grids import FittedTable

    names = _columns(rows)
    axes = names[: names.index("defence")] if "defence" in names else []
    found = [name for name in _SHOWN if any(row.get(name) is not None for row in rows)]
    shown = [*axes, *found]
    cells: list[list[Text]] = []
    without: dict[str, list[str]] = {}
    for row in rows:
        if row.get("outcome") in ("refused", "pending", "failed"):
            named = [axis for axis in (*axes, "defence", "attack") if row.get(axis) is not None]
            place = ", ".join(f"{axis}={row[axis]}" for axis in named)
            without.setdefault(f"{row['outcome']}: {row['reason']}", []).append(place)
        else:
            cells.append([Text(_cell(row, name)) for name in shown])
    return Group(
        FittedTable(shown, cells, heads=len(axes) + sum(name in found for name in ("defence", "attack"))),
        *(Text(f"{reason} ({_some(places)})") for reason, places in without.items()),
    )


def _cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if f"{name}_count" not in row:
        return "" if value is None else str(value)
    if value is None:
        return "not measured"
    low, high, null = (row.get(f"{name}_{part}") for part in ("low", "high", "null"))
    interval = "" if low is None or high is None else f" [{low:.3g}, {high:.3g}]"
    return f"{value:.3g}{interval}" + ("" if null is None else f", null {null:.3g}")


def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="The folder before a change.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The folder after it.")],
    metric: Annotated[list[str] | None, typer.Option(help="Repeatable; identification and psnr.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare two sweeps or audits example by example; exit with 1 where more leaks in B than in A."""
    from leakgauge.audit.store import FolderStore
    from leakgauge.sweep import compare_stores

    chosen = tuple(metric or ("identification", "psnr"))
    found = compare_stores(FolderStore.open(before), FolderStore.open(after), chosen)
    worse = [one for one in found if one.worse]
    if as_json:
        print_json("compare", None, [one.to_dict() for one in found], regressions=len(worse))
    else:
        rows = [
            {
                **one.place,
                "defence": one.defence,
                "attack": one.attack,
                "what": one.metric or "verdict",
                "before": f"{one.before:.3g}",
                "after": f"{one.after:.3g}",
                "change, 95 % interval": one.words or f"{one.change:+.3g} [{one.low:.3g}, {one.high:.3g}]",
                "pairs": one.pairs or "",
                "p": "" if one.p != one.p else f"{one.p:.2g}",
                "": "leaks more" if one.worse else "",
            }
            for one in found
            if one.metric is None or one.pairs
        ]
        print_rows(rows, "compare", False, heads=max((len(one.place) for one in found), default=0) + 2)
    if worse:
        stderr().print(f"[bold red]regression[/] {len(worse)} of {len(found)} comparisons leak more.", soft_wrap=True)
        raise typer.Exit(ExitCode.EXCEEDED)
