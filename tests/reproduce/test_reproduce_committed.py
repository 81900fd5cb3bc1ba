"""Every number of a committed result follows from the victims that stand beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from leakgauge.reproduce.measures.updates import Setting
from leakgauge.reproduce.registry import named_table
from leakgauge.reproduce.standing import higher_is_leakier, standing
from leakgauge.reproduce.table import Measured

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
TABLES = sorted(path for path in RESULTS.glob("*.json") if "experiment" in json.loads(path.read_text("utf-8")))


def contradictions(result: Mapping[str, Any]) -> Iterator[str]:
    """Where a row's means, spreads or standing are not those of its updates."""
    table = named_table(result["experiment"])
    of_updates = {row.label for row in table.rows if isinstance(row.at(result["scale"]), Setting)}
    for row in result["rows"]:
        for metric, told in row.get("standing", {}).items():
            if standing(row, metric, result["metric"]) != told:
                yield f"{row['label']}: standing of {metric}"
        if row["label"] not in of_updates:
            continue
        for side, updates in (("ours", row["updates"]), ("null", row["nulls"])):
            for metric, told in row[side].items():
                scores = [one["scores"][metric] for one in updates]
                known = [
                    [math.nan if each is None else each for each in one] for one in scores if isinstance(one, list)
                ]
                # Of labels a file has the means alone, over examples that it counts.
                found = Measured.of(
                    known or [[one] for one in scores],
                    table.best,
                    per_image=table.per_image,
                    lower=not higher_is_leakier(metric),
                )
                names = ("mean", "deviation", "standard_error", "updates", *(("images", "best") if known else ()))
                if {name: asdict(found)[name] for name in names} != pytest.approx({name: told[name] for name in names}):
                    yield f"{row['label']}: {side} of {metric}"


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_means_spreads_and_standings_are_those_of_the_victims(path: Path) -> None:
    assert list(contradictions(json.loads(path.read_text("utf-8")))) == []


def test_a_number_that_was_typed_is_found() -> None:
    path = next(path for path in TABLES if path.stem == "geiping2020-table1-long")
    result = json.loads(path.read_text("utf-8"))
    row = result["rows"][0]
    row["ours"]["psnr"]["mean"] += 0.01
    row["standing"]["psnr"] = "short"
    assert list(contradictions(result)) == [f"{row['label']}: standing of psnr", f"{row['label']}: ours of psnr"]
