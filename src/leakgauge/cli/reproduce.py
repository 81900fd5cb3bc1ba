"""``leakgauge reproduce``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.options import JsonFlag, OutOption, RayOption, SeedOption
from leakgauge.cli.output import answers, exit_early, print_path, print_rows, stderr, stdout


def reproduce(
    table: Annotated[str | None, typer.Argument(help="Such as geiping2020/table1; without it, a list.")] = None,
    scale: Annotated[
        str, typer.Option(help="smoke (seconds), cpu (up to an hour), long (hours) or full (as published).")
    ] = "smoke",
    data_root: Annotated[Path | None, typer.Option(help="Folder that holds the dataset's files.")] = None,
    images: Annotated[int | None, typer.Option(help="Private images per row, instead of the scale's.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Seconds per update, instead of the scale's limit.")] = None,
    rows: Annotated[
        list[str] | None, typer.Option(help="Measure rows whose name holds this, beside what the file has; repeatable.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    weights: Annotated[str | None, typer.Option(help="Folder with weights of LPIPS and of trained models.")] = None,
    seed: SeedOption = None,
    jobs: Annotated[int, typer.Option(min=1, help="Attacks on a small model that run at once.")] = 1,
    ray: RayOption = None,
    out: OutOption = Path("reproduced"),
    as_json: JsonFlag = False,
) -> None:
    """Run a table or figure of a paper and print the published numbers beside ours."""
    from leakgauge.audit.executors import executor_for
    from leakgauge.report.progress import work_progress
    from leakgauge.reproduce.registry import TABLES, named_table
    from leakgauge.reproduce.run import Options, prepare
    from leakgauge.reproduce.run import reproduce as run
    from leakgauge.reproduce.show import grid, write_sheet

    if table is None:
        print_rows([{"experiment": one.name, "what": one.title} for one in TABLES.values()], "reproduce", as_json)
        return
    folder = None if weights is None else Path(weights)
    chosen = tuple(rows or ())
    options = Options(scale, data_root, out, images, seconds, seed or 0, device, folder, chosen)  # type: ignore[arg-type]
    prepared = prepare(named_table(table), options)
    with work_progress(stderr(), prepared.pieces) as watch:
        result = run(prepared, watch=watch, executor=executor_for(jobs, ray))
    if as_json:
        answers().write(json.dumps(result.to_dict(), allow_nan=False) + "\n")
    else:
        stdout().print(grid(result))
    if not result.complete:
        exit_early()
    file = options.file(result.table)
    write_sheet(result, file.with_suffix(".png"))
    if not as_json:
        print_path("Result", file)
