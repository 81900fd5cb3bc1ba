"""What a table gave, beside what was published; written by the program, never by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from leakgauge.files import write_text
from leakgauge.fingerprint import digest, environment
from leakgauge.reproduce.orders import orders
from leakgauge.reproduce.standing import Standing, differences, standing
from leakgauge.reproduce.table import Bench, Found, Measure, Measured, Row, Table, measuring_code
from leakgauge.version import VERSION

_NOTHING = Measured(None, None, None, 0, 0)
"""The null of what has none, such as a time."""


@dataclass(frozen=True)
class RowResult:
    """One row, what measured it and what was found."""

    row: Row
    measure: Measure
    found: Found

    def differs(self) -> list[str]:
        """What was run other than in the paper, which is what the scale ``full`` would run."""
        return list(differences(self.measure, self.row.at("full")))

    def standings(self, first: str) -> dict[str, Standing]:
        """How the row stands to what was published and to its null, by metric."""
        row = {**self._numbers(), **self.found.facts}
        return {metric: standing(row, metric, first) for metric in self.found.ours}

    def to_dict(self, first: str) -> dict[str, Any]:
        """The row as JSON has it; ``first`` is the table's own metric."""
        return {
            **self._numbers(),
            "standing": self.standings(first),
            "differs": self.differs(),
            "code": measuring_code(),
            **self.found.facts,
        }

    def _numbers(self) -> dict[str, Any]:
        row = self.row
        return {
            "label": row.label,
            "published": None if row.published is None else asdict(row.published),
            "beside": None if row.beside is None else asdict(row.beside),
            "also_published": {name: asdict(one) for name, one in row.also.items()},
            "fingerprint": recipe_fingerprint(row, self.measure),
            **numbers_of(replace(self.found, facts={})),
        }


@dataclass(frozen=True)
class TableResult:
    """All rows that were measured, on that bench, ``beside`` those that the file had and that were not."""

    bench: Bench
    rows: tuple[RowResult, ...]
    complete: bool
    beside: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def table(self) -> Table:
        return self.bench.table

    def to_dict(self) -> dict[str, Any]:
        table, options, rows = self.table, self.bench.options, self._rows()
        verdict = table.verdict(rows)
        return {
            "command": options.command(table),
            "experiment": table.name,
            "title": table.title,
            "scale": options.scale,
            "seed": options.seed,
            "version": VERSION,
            "fingerprint": measuring_code(),
            "environment": environment(),
            "dataset": self.bench.data.name,
            "metric": table.metrics[0],
            "best": table.best or None,
            "threat_model": table.threat_model,
            "notes": list(self.notes),
            "complete": self.complete and len(rows) == len(table.rows),
            **({} if verdict is None else {"verdict": verdict}),
            "rows": rows,
        }

    def _rows(self) -> list[dict[str, Any]]:
        measured = {row.row.label: row.to_dict(self.table.metrics[0]) for row in self.rows}
        known = {**self.beside, **measured}
        return [known[row.label] for row in self.table.rows if row.label in known]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know besides the numbers."""
        table, scale = self.table, self.bench.scale
        shrunk = table.shrunk.get("cpu" if scale == "long" and scale not in table.shrunk else scale)
        stand_in = "Embedded photographs stand in for the paper's data: this shows that the code runs."
        verdict = None if table.contest is None else table.verdict(self._rows())
        return (
            *((stand_in,) if self.bench.data.name == "photos" else ()),
            *(() if shrunk is None else (shrunk,)),
            *(() if table.null is None else (f"Null: {table.null}.",)),
            *table.assumptions,
            *orders(table, self._rows()),
            *(() if verdict is None else (verdict["rule"], *verdict["summary"])),
        )

    def write(self, path: Path) -> None:
        write_text(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")


def recipe_fingerprint(row: Row, measure: Measure) -> str:
    """A digest of what decides on a row besides the code: who measures it, with every attack, model and budget."""
    return digest((repr(measure), row.name), (), ())


def numbers_of(found: Found) -> dict[str, Any]:
    """What was found, as JSON has it; every number of ours has a null beside it, if an empty one."""
    return {
        "ours": {name: asdict(one) for name, one in found.ours.items()},
        "null": {name: asdict(found.null.get(name, _NOTHING)) for name in found.ours},
        **found.facts,
    }


def found_of(numbers: Mapping[str, Any], originals: Tensor | None, estimates: Tensor | None) -> Found:
    """The inverse of `numbers_of`."""
    ours, null = ({name: Measured(**one) for name, one in numbers[side].items()} for side in ("ours", "null"))
    facts = {name: value for name, value in numbers.items() if name not in ("ours", "null")}
    return Found(ours, null, facts, originals, estimates)
