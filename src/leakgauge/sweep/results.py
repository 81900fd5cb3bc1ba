"""What a folder holds, row by row: of a sweep the latest run of each cell, else its last run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from leakgauge.audit.result import AuditResult, Finding, Measurement, summarise_stored
from leakgauge.audit.store import FolderStore
from leakgauge.errors import InvalidCase
from leakgauge.files import finite


@dataclass(frozen=True)
class CellResult:
    """One audit of a folder: its place in a sweep, empty for an audit of its own, and what came of it.

    ``refused`` is why a cell makes no sense; ``result`` is None then, and where nothing is done yet.
    """

    place: Mapping[str, Any]
    description: Mapping[str, Any]
    keys: tuple[str, ...]
    refused: str | None
    result: AuditResult | None


def latest_runs(store: FolderStore) -> list[dict[str, Any]]:
    """Of each cell the run that was begun last, in the order of the cells; of audits, the last."""
    runs = store.runs()
    if not runs:
        raise InvalidCase(f"{store.folder} holds no runs; run `leakgauge sweep` or `leakgauge audit` into it.")
    last = runs[-1]["description"].get("sweep")
    if last is None:
        return runs[-1:]
    grid = json.dumps(last["grid"], sort_keys=True)
    own = [run for run in runs if json.dumps(run["description"].get("sweep", {}).get("grid"), sort_keys=True) == grid]
    return list({json.dumps(run["description"]["sweep"]["place"]): run for run in own}.values())


def read_cells(store: FolderStore) -> Iterator[CellResult]:
    """One cell after another, so that few records are in memory; pictures stay on the disk."""
    for run in latest_runs(store):
        description, keys = run["description"], tuple(run["keys"])
        records = list(store.records(keys))
        result = None
        if records:
            result = summarise_stored(records, run, store.folder)
        place = description.get("sweep", {}).get("place", {})
        yield CellResult(place, description, keys, description.get("refused"), result)


def result_rows(store: FolderStore) -> Iterator[dict[str, Any]]:
    """Flat rows, one for each cell, defence and attack; what was not measured is None. A refused cell is a row too."""
    for cell in read_cells(store):
        if cell.result is None:
            reason = cell.refused or "nothing is done yet"
            outcome = "refused" if cell.refused else "pending"
            yield {**cell.place, "defence": None, "attack": None, "outcome": outcome, "reason": reason}
            continue
        for row in cell.result.rows:
            yield {**cell.place, **_flat(row, cell)}


def _scores(name: str, found: Measurement | None) -> dict[str, Any]:
    """A metric, its interval and its null; empty where there is none, as of labels that were given to the attacker."""
    values = {} if found is None else {"": found.attack.mean, "_low": found.attack.low, "_high": found.attack.high}
    values |= {} if found is None else {"_null": found.null.mean}
    numbers = {f"{name}{part}": finite(values.get(part, math.nan)) for part in ("", "_low", "_high", "_null")}
    return {**numbers, f"{name}_count": 0 if found is None else found.attack.count}


def _flat(row: Finding, cell: CellResult) -> dict[str, Any]:
    known = "; ".join(fact.words for fact in row.assumptions if fact.disclosed)
    flat: dict[str, Any] = {
        "defence": row.defence,
        "attack": row.attack,
        "threat_model": cell.description.get("threat_model"),
        "outcome": row.outcome.name.lower(),
        "reason": row.reason,
        "verdict": row.verdict.value,
        "reasons": ", ".join(one.name.lower() for one in row.judgement.reasons),
        "leaked": row.leaked,
        "victims": row.victims,
        "batch_size": row.batch_size,
        "rounds": row.rounds,
        "seconds": round(row.seconds, 3),
        "attacker_knows": known,
    }
    for name in row.measurements:
        flat |= _scores(name, row.measured(name))
    # The axes of the sweep stand in front and are not said twice.
    return {key: value for key, value in flat.items() if key not in cell.place}
