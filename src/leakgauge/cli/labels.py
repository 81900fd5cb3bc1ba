"""``leakgauge labels``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.limits import check_limits, limits_of
from leakgauge.cli.options import JsonFlag, LimitOption, SeedOption
from leakgauge.cli.output import finish, stderr


def labels(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recorded rounds, as .safetensors.")],
    model: Annotated[str, typer.Option(help="package.module:factory of the model the updates belong to.")],
    method: Annotated[list[str] | None, typer.Option(help="Repeatable; a label attack of `leakgauge list`.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per update, where a file does not say.")] = None,
    truth: Annotated[
        list[Path] | None, typer.Option(help=".npz with private `images` and `labels`; once per FILE, in order.")
    ] = None,
    seed: SeedOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results and a report; without it, none.")] = None,
    fail_above: LimitOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Restore the labels of recorded updates: which classes a client trained on, and how often."""
    from leakgauge.audit.execute import execute
    from leakgauge.audit.recorded import DEFAULT_LABEL_ATTACK, RecordedPlan, prepare_recorded
    from leakgauge.audit.store import check_reachable
    from leakgauge.report.console import label_tables
    from leakgauge.report.progress import case_progress

    limits = limits_of(fail_above)
    if out is not None:
        check_reachable(out)
    prepared = prepare_recorded(
        RecordedPlan(
            files=tuple(map(str, files)),
            model=model,
            attacks=tuple(method or (DEFAULT_LABEL_ATTACK,)),
            labels_only=True,
            batch_size=batch_size,
            truths=tuple(map(str, truth or ())),
            seed=seed or 0,
        )
    )
    check_limits(limits, prepared)
    with case_progress(stderr(), prepared.cases) as watch:
        result = execute(prepared, out, watch)
    finish(result, out, limits, as_json, "labels", label_tables)
