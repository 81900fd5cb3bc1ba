"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder for results and the report.")]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of data, client and attack.")]
BudgetOption = Annotated[str | None, typer.Option("--budget", help="Work of each attack: quick, standard or deep.")]
SecondsOption = Annotated[float | None, typer.Option("--seconds", help="Seconds of each attack.")]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", min=1, help="Attacks on a small model that run at once; else one per core when it pays."),
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option("--fail-above", help="metric=limit; exit with 1 when any row leaks more, e.g. identification=0.5."),
]


def options_for(plan: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the options of a command, those that were given and that a plan has by the same names."""
    return {name: given[name] for name in plan.__dataclass_fields__ if given.get(name) is not None}
