"""The grid of bounds: no success above its bound, kept as it goes, and resumed."""

from __future__ import annotations

import json

import pytest
import torch

import bounds
import readings


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)  # other tests count on one
    for name, values in {"NOISES": (0.5, 2.0), "SAMPLINGS": (1.0, 0.1), "ROUNDS": (1, 10), "CANDIDATES": (10,)}.items():
        monkeypatch.setattr(bounds, name, values)
    monkeypatch.setattr(bounds, "NETWORKS", (("digits", "mlp:hidden=(8,)", 0),) * 2)


def test_every_cell_is_below_its_bound_and_a_second_call_adds_what_is_missing(tmp_path, capsys):
    out = tmp_path / "bounds.json"
    command = ["--only", "worst-case", "--times", "2000", "--out", str(out)]
    bounds.main(command)
    result = json.loads(out.read_text())
    assert result["command"] == "python benchmarks/bounds.py --times 2000 --games 200 --seed 0"
    assert len(result["rows"]) == 8
    for row in result["rows"]:
        assert row["identified_low"] <= row["at_most"]
        assert row["detected_low"] <= row["at_most"] <= row["detected_high"]
    out.write_text(json.dumps({**result, "rows": result["rows"][1:]}))
    capsys.readouterr()
    bounds.main(command)
    assert capsys.readouterr().err.count("...") == 1
    again = json.loads(out.read_text())["rows"]
    timeless = [[{**row, "cpu_seconds": None} for row in one] for one in (again, result["rows"])]
    assert timeless[0] == timeless[1]  # in the order of the grid, and the same numbers


@pytest.mark.slow
def test_networks_are_played_and_their_jacobians_measured(tmp_path):
    out = tmp_path / "bounds.json"
    for only in ("networks", "jacobians"):
        bounds.main(["--only", only, "--games", "10", "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert {row["kind"] for row in rows} == {"network", "jacobian"}
    for row in rows:
        if row["kind"] == "network":
            assert row["identified_low"] <= row["at_most"]
        else:
            assert row["largest"] >= row["eighth"] > 0
            assert row["nearest_db_at_0.001"] > row["nearest_db_at_0.1"]


def test_the_committed_grid_is_the_one_that_was_asked_for_and_nowhere_beaten():
    rows = readings.load()["bounds.json"]["rows"]
    worst = [row for row in rows if row["kind"] == "worst case"]
    asked = {(row["noise"], row["sampling"], row["rounds"], row["candidates"]) for row in worst}
    assert len(asked) == 4 * 3 * 4 * 2
    played = [row for row in rows if "identified" in row]
    assert len(played) > len(worst)
    assert all(row["identified_low"] <= row["at_most"] for row in played)
    for row in worst:
        if (row["sampling"], row["rounds"], row["candidates"]) == (1.0, 1, 100):
            assert abs(row["detected"] - row["at_most"]) < 0.03
