"""Audits of updates that have nothing to do with the private examples: few are accused."""

from __future__ import annotations

import json

import torch

import calibration
import readings


def test_unrelated_updates_are_not_accused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)  # other tests count on one
    out = tmp_path / "calibration.json"
    calibration.main(["--updates", "12", "--rows", "1", "--out", str(out)])
    result = json.loads(out.read_text())
    assert result["command"] == "python benchmarks/calibration.py --updates 12 --rows 1 --seed 0"
    (row,) = result["rows"]
    assert row["accused"] <= 2  # of which 12 at a rate of 5 % have more in 2 % of all cases
    assert sum(row["verdicts"].values()) == row["updates"] == 12


def test_in_the_committed_result_at_most_one_in_twenty_is_accused():
    rows = readings.load()["calibration.json"]["rows"]
    cells = [(row["dataset"], row["attack"], row["batch_size"]) for row in rows]
    assert cells == calibration.CELLS[: len(rows)] != []
    for row in rows:
        assert row["updates"] >= 400
        assert row["rate"] <= 0.05
