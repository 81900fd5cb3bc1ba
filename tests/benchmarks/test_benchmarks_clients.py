"""What comes back from each way a client trains."""

from __future__ import annotations

import json

import clients


def test_the_benchmark_of_clients_keeps_what_it_measured_and_adds_what_is_missing(tmp_path, capsys):
    file = tmp_path / "clients.json"
    words = ["--steps", "2", "--batch-size", "1", "--out", str(file), "--clients"]
    clients.main([*words, "head at home"])
    first = json.loads(file.read_text())["rows"]
    clients.main([*words, "head at home", "one gradient"])
    both = json.loads(file.read_text())["rows"]
    assert [row["client"] for row in both] == ["one gradient", "head at home"]
    assert both[1] == first[0]
    assert all(row["psnr"] > 0 and row["null"] > 0 for row in both)
