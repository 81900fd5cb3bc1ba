"""``leakgauge report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.options import JsonFlag, LimitOption, limits_of
from leakgauge.cli.output import finish


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of an earlier audit.")] = Path("report"),
    fail_above: LimitOption = None,
    weights: Annotated[str | None, typer.Option(help="Folder with LPIPS weights (or LEAKGAUGE_WEIGHTS).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the report of an earlier audit again, from its stored results."""
    from leakgauge.audit.execute import load_result
    from leakgauge.catalogue import standard_metrics

    limits = limits_of(fail_above)
    result = load_result(folder, standard_metrics(weights))
    result.write_report(folder)
    finish(result, folder, limits, as_json, "report")
