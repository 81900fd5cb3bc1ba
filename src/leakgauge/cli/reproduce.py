"""``leakgauge reproduce``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from leakgauge.cli.options import JsonFlag, OutOption, SeedOption
from leakgauge.cli.output import escaped, print_rows, stderr, stopped_early

if TYPE_CHECKING:
    from rich.table import Table

    from leakgauge.reproduce.experiment import Experiment
    from leakgauge.reproduce.result import Reproduction
    from leakgauge.reproduce.run import Options
    from leakgauge.reproduce.study import Study, StudyResult


def reproduce(
    experiment: Annotated[str | None, typer.Argument(help="Such as geiping2020/table1; without it, a list.")] = None,
    scale: Annotated[str, typer.Option(help="smoke (seconds), cpu (up to an hour) or full (as published).")] = "smoke",
    data_root: Annotated[Path | None, typer.Option(help="Folder that holds the dataset's files.")] = None,
    images: Annotated[int | None, typer.Option(help="Private images per row, instead of the scale's.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Seconds per update, instead of the scale's limit.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    weights: Annotated[str | None, typer.Option(help="Folder with LPIPS weights (or LEAKGAUGE_WEIGHTS).")] = None,
    seed: SeedOption = None,
    out: OutOption = Path("reproduced"),
    as_json: JsonFlag = False,
) -> None:
    """Run a table or figure of a paper and print the published numbers beside ours."""
    from leakgauge.reproduce.registry import EXPERIMENTS, STUDIES, named
    from leakgauge.reproduce.run import Options
    from leakgauge.reproduce.study import Study

    if experiment is None:
        titles = {one.name: one.title for one in EXPERIMENTS.values()} | {
            one.name: one.title for one in STUDIES.values()
        }
        print_rows([{"experiment": name, "what": title} for name, title in titles.items()], "reproduce", as_json)
        return
    chosen = named(experiment)
    folder = None if weights is None else Path(weights)
    options = Options(scale, data_root, out, images, seconds, seed or 0, device, folder)  # type: ignore[arg-type]
    if isinstance(chosen, Study):
        _study(chosen, options, as_json)
    else:
        _experiment(chosen, options, as_json)


def _experiment(chosen: Experiment, options: Options, as_json: bool) -> None:
    from leakgauge.reproduce.run import prepare
    from leakgauge.reproduce.run import reproduce as run
    from leakgauge.reproduce.show import table, watching, write_sheet

    prepared = prepare(chosen, options)
    with watching(stderr(), prepared.labels) as watch:
        result = run(prepared, watch=watch)
    _tell(result, table(result), options.file(chosen), lambda path: write_sheet(result, path), as_json)


def _study(chosen: Study, options: Options, as_json: bool) -> None:
    from leakgauge.reproduce.study import prepare_study, run_study
    from leakgauge.reproduce.study_show import study_table, watching_study, write_study_sheet

    prepared = prepare_study(chosen, options)
    with watching_study(stderr(), chosen) as watch:
        result = run_study(prepared, watch)
    _tell(result, study_table(result), options.file(chosen), lambda path: write_study_sheet(result, path), as_json)


def _tell(
    result: Reproduction | StudyResult,
    table: Table,
    file: Path,
    write_sheet: Callable[[Path], Path | None],
    as_json: bool,
) -> None:
    if as_json:
        sys.stdout.write(json.dumps(result.to_dict(), allow_nan=False) + "\n")
    else:
        Console().print(table)
    if not result.complete:
        stopped_early()
    write_sheet(file.with_suffix(".png"))
    if not as_json:
        Console().print(f"Result: [bold]{escaped(str(file.resolve()))}[/]", soft_wrap=True)
