"""``leakgauge invert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.limits import check_limits, limits_of
from leakgauge.cli.options import BudgetOption, JsonFlag, LimitOption, OutOption, SecondsOption, SeedOption
from leakgauge.cli.output import finish, stderr


def invert(
    file: Annotated[Path, typer.Argument(help="A recorded round, as .safetensors.")],
    model: Annotated[str, typer.Option(help="package.module:factory of the model the update belongs to.")],
    attack: Annotated[str, typer.Option(help="The attack to run.")] = "quasi_newton",
    budget: BudgetOption = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    seconds: SecondsOption = None,
    truth: Annotated[
        Path | None, typer.Option(help=".npz with the private `images` (or `rows`) and `labels`, to score it.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Folder with LPIPS weights (or LEAKGAUGE_WEIGHTS).")] = None,
    seed: SeedOption = None,
    out: OutOption = Path("inverted"),
    fail_above: LimitOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Attack a recorded update that nobody simulated here; write what came back and a report."""
    from leakgauge.audit.execute import execute
    from leakgauge.audit.recorded import RecordedPlan, prepare_recorded
    from leakgauge.audit.store import check_reachable
    from leakgauge.report.images import write_images
    from leakgauge.report.progress import case_progress
    from leakgauge.report.rows import write_rows
    from leakgauge.space import TableSpace

    limits = limits_of(fail_above)
    check_reachable(out)
    prepared = prepare_recorded(
        RecordedPlan(
            files=(str(file),),
            model=model,
            attacks=(attack,),
            budget=budget,
            steps=steps,
            seconds=seconds,
            truths=() if truth is None else (str(truth),),
            weights=weights,
            seed=seed or 0,
        )
    )
    check_limits(limits, prepared)
    console = stderr()
    with case_progress(console, prepared.cases) as watch:
        result = execute(prepared, out, watch)
    for row in result.rows:
        for record in row.records:
            if isinstance(record.space, TableSpace):
                write_rows(record.space, record.pictures.reconstructions, out)
            else:
                write_images(record.pictures.reconstructions, out)
    finish(result, out, limits, as_json, "invert")
