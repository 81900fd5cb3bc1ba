"""What a committed result file says about its rows: numbers as they are written, and whether they mean anything.

Everything here is read off the files; the pages and the plots are made of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leakgauge.catalogue import METRICS
from leakgauge.reproduce import TABLES, outdated_rows
from leakgauge.reproduce.orders import orders
from leakgauge.reproduce.standing import at_null, standing

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
OURS = ": ours"
"""How the label of a row of our own attack goes on after that of the paper's."""

OLDER = "made by an older recipe"
AT_NULL = "not above its null"

Result = Mapping[str, Any]


def load() -> dict[str, Result]:
    """Every result by the name of its file; a table with why rows of it would come out differently today."""
    results = {path.name: json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    for result in results.values():
        if "experiment" in result:
            result["outdated"] = outdated_rows(result)
    return results


def orders_of(result: Result) -> list[str]:
    """In which order rows stand, as it is read today; of a table that is no more, nothing."""
    table = TABLES.get(result["experiment"])
    return [] if table is None else orders(table, result["rows"])


def metrics_of(result: Result) -> list[str]:
    return list(result["rows"][0]["ours"])


def title_of(metric: str) -> str:
    return METRICS[metric].title if metric in METRICS else metric.replace("_", " ")


def older_recipe(result: Result, row: Result) -> bool:
    """Whether the code that made a row has since changed what it would make of it."""
    return row["label"] in result.get("outdated", {})


def remarks(result: Result, row: Result, metric: str) -> list[str]:
    """What must be said beside a row's numbers."""
    said = {OLDER: older_recipe(result, row), AT_NULL: at_null(row, metric)}
    return [remark for remark, holds in said.items() if holds]


def ours(row: Result, metric: str, first: str) -> str:
    """What was measured; no bare number where it is at its null and would stand beside a published one."""
    at = standing(row, metric, first)
    said = measured(row["ours"][metric])
    return f"{at} ({said})" if at in ("not reached", "at its null, as published") else said


def published(row: Result, metric: str, first: str) -> str:
    given = row["published"] if metric == first else row["also_published"].get(metric)
    if given is None or given["mean"] is None:
        return "–"
    spread = "" if given["deviation"] is None else f" ± {given['deviation']:.3g}"
    return number(given["mean"]) + spread + (" (s.e.)" if spread and given["spread"] == "standard error" else "")


def measured(one: Result) -> str:
    if one["mean"] is None:
        return "–"
    best = "" if one.get("best") is None else f", best {number(one['best'])}"
    return spread(one) + best


def spread(one: Result) -> str:
    """A mean with its standard deviation, where there is one."""
    if one["mean"] is None:
        return "–"
    return number(one["mean"]) + ("" if one["deviation"] is None else f" ± {one['deviation']:.2f}")


def number(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.1e}"
    return f"{value:.3f}" if abs(value) < 2 else f"{value:.2f}"
