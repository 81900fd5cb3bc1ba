"""A row of a result file is marked if its recipe has changed since, and only then."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from reproduce_support import Counting, table_of

from leakgauge.reproduce import Options, outdated, outdated_rows, registry, reproduce
from leakgauge.reproduce.outdated import _same

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_no_row_of_a_committed_result_is_of_an_older_recipe() -> None:
    found = {}
    for path in RESULTS.glob("*.json"):
        result = json.loads(path.read_text("utf-8"))
        if "experiment" in result and (rows := outdated_rows(result)):
            found[path.name] = (len(rows), len(result["rows"]), {why.partition("(")[0] for why in rows.values()})
    assert found == {}


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    table = table_of(Counting(1), Counting(2))
    monkeypatch.setattr(registry, "TABLES", {table.name: table})
    payload: dict[str, Any] = json.loads(json.dumps(reproduce(table, Options(out=tmp_path)).to_dict()))
    assert outdated_rows(payload) == {}
    return payload


def offer(monkeypatch: pytest.MonkeyPatch, *measures: Counting) -> None:
    table = table_of(*measures)
    monkeypatch.setattr(registry, "TABLES", {table.name: table})


def test_a_changed_recipe_marks_its_row_alone(result: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, Counting(1), Counting(3))
    assert outdated_rows(result) == {"row 1": "its value was 2"}


def test_before_there_were_fingerprints_the_words_of_the_row_are_compared(
    result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in result["rows"]:
        del row["fingerprint"]
    assert outdated_rows(result) == {}
    offer(monkeypatch, Counting(5), Counting(2))
    assert outdated_rows(result) == {"row 0": "its value was 1"}


def test_rows_that_are_no_more_and_rows_that_the_file_names_are_marked(
    result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outdated_rows(result | {"outdated": {"row 0": "made by hand"}}) == {"row 0": "made by hand"}
    offer(monkeypatch, Counting(1))
    assert outdated_rows(result) == {"row 1": "no longer in the table"}
    assert set(outdated_rows(result | {"experiment": "here2020/table7"})) == {"row 0", "row 1"}


@dataclass(frozen=True)
class Part:
    width: int
    norm: bool = False


def test_a_field_that_did_not_exist_yet_has_its_default() -> None:
    assert _same("Part(width=3)", Part(3))
    assert _same("Part(width=3, norm=True)", Part(3, norm=True))
    assert not _same("Part(width=3)", Part(3, norm=True))
    assert not _same("Part(width=4)", Part(3))
    assert not _same("Other(width=3)", Part(3))
    assert not _same("Part(width=3, depth=2)", Part(3))
    assert not _same("no expression", Part(3))


def test_another_name_is_no_other_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(outdated._RENAMED, "Piece", "Part")
    assert _same("Piece(width=3)", Part(3))
    assert not _same("Piece(width=4)", Part(3))
