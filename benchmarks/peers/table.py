"""What the attacks of a comparison come to: a row for each network, batch size and budget."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def rows_of(attacks: Sequence[Row]) -> list[Row]:
    cells = dict.fromkeys((one["model"], one["batch_size"], one["seconds"]) for one in attacks)
    rows = []
    for model, size, seconds in cells:
        own = [one for one in attacks if (one["model"], one["batch_size"], one["seconds"]) == (model, size, seconds)]
        rows.append({"model": model, "batch": size, "cpu_seconds": seconds, **_cell(own)})
    return rows


def _cell(attacks: Sequence[Row]) -> Row:
    """The mean of each, and by how much `best` leads the strongest peer over the victims that both met."""
    means = {(one["by"], one["victim"]): statistics.fmean(one["psnr"]) for one in attacks if one["psnr"]}
    names = list(dict.fromkeys(one["by"] for one in attacks))
    row: Row = {}
    leads: dict[str, float] = {}
    for name in names:
        own = {victim: value for (by, victim), value in means.items() if by == name}
        row[name] = round(statistics.fmean(own.values()), 2) if own else None
        shared = [victim for victim in own if ("best", victim) in means]
        if name != "best" and shared:
            leads[name] = statistics.fmean(means["best", victim] - own[victim] for victim in shared)
    strongest = min(leads, key=lambda name: leads[name]) if leads else None
    nulls = [score for one in attacks if one["by"] == "best" for score in one["null"]]
    failed = {one["by"]: one["failed"] for one in attacks if one.get("failed")}
    return {
        **row,
        "strongest_peer": strongest,
        "lead": None if strongest is None else round(leads[strongest], 2),
        "victims": len({victim for _, victim in means}),
        "null": round(statistics.fmean(nulls), 2) if nulls else None,
        "failed": [f"{name}: {why}" for name, why in failed.items()],
    }


def table(rows: Sequence[Row]) -> str:
    """For people; a dash is what was not measured."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([_shown(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)


def _shown(value: Any) -> str:
    if value is None or value == []:
        return "-"
    return "; ".join(value) if isinstance(value, list) else f"{value:.2f}" if isinstance(value, float) else str(value)
