"""``leakgauge list``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from leakgauge.cli.options import JsonFlag, OutOption
from leakgauge.cli.output import print_rows
from leakgauge.errors import InvalidCase


def list_(
    what: Annotated[str | None, typer.Argument(help="attacks, defences, ...; or `runs`, with --out.")] = None,
    out: OutOption = Path("report"),
    as_json: JsonFlag = False,
) -> None:
    """List the catalogue, or the runs kept in a folder."""
    print_rows(_runs(out) if what == "runs" else _catalogue(what), "list", as_json)


def _catalogue(what: str | None) -> list[dict[str, Any]]:
    from leakgauge.catalogue import CATALOGUE

    if what is not None and what not in CATALOGUE:
        raise InvalidCase(f"There is no {what!r} to list; choose from {', '.join((*CATALOGUE, 'runs'))}.")
    return [
        {"kind": kind, "name": name, "options": _signature(part), "what": _summary(part)}
        for kind, table in CATALOGUE.items()
        if what in (None, kind)
        for name, part in table.items()
    ]


def _signature(part: Callable[..., Any]) -> str:
    import inspect

    if part.__name__ == "<lambda>":
        return ""
    parameters = inspect.signature(part).parameters.values()
    return ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)


def _summary(part: Callable[..., Any]) -> str:
    if part.__name__ == "<lambda>":
        return str(part().source)
    return (part.__doc__ or "").strip().splitlines()[0]


def _runs(folder: Path) -> list[dict[str, Any]]:
    from leakgauge.audit.store import FolderStore

    store = FolderStore.open(folder)
    return [
        {
            "id": run["id"],
            "started": run["started"],
            "finished": sum(store.get(key) is not None for key in run["keys"]),
            "cases": len(run["keys"]),
            "seed": run["description"].get("seed"),
            "model": run["description"].get("model"),
        }
        for run in store.runs()
    ]
