"""What is measured of stores and drivers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import executors


@pytest.mark.slow
def test_ten_thousand_records_are_listed_in_seconds_and_held_one_at_a_time() -> None:
    row = executors.listing()
    assert row["records"] == 10_000
    assert row["times_of_parsing"] < 10, "a second where parsing takes .2: in ratios, as cores differ"
    assert row["grown_megabytes"] < 20


def test_parts_that_a_file_holds_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(executors, "PARTS", ("listing", "memory"))
    monkeypatch.setattr(executors, "measure", lambda part, seconds: asked.append(part) or {"of it": {"cases": 1}})
    for more in ([], [], ["--parts", "memory"]):
        monkeypatch.setattr("sys.argv", ["executors.py", "--out", str(tmp_path / "out.json"), *more])
        executors.main()
    assert asked == ["listing", "memory", "memory"]
    assert [row["part"] for row in json.loads((tmp_path / "out.json").read_text())["rows"]] == ["listing", "memory"]
