"""What servers that cheat read, beside what they expected."""

from __future__ import annotations

import json

import servers
from leakgauge.attacks.malicious import FrontLayer
from leakgauge.models import MLP


def test_rows_have_what_was_expected_and_a_null_and_those_in_the_file_are_kept(tmp_path, monkeypatch, capsys):
    small = {"model": MLP(hidden=(8,)), "batch": 4, "dataset": "digits", "updates": 1}
    both = {
        "one measure": servers.Situation(FrontLayer(64), **small),
        "two clients": servers.Situation(FrontLayer(64, measures=2), clients=2, **small),
    }
    monkeypatch.setattr(servers, "SITUATIONS", both)
    file = tmp_path / "servers.json"
    servers.main(["--only", "two", "--out", str(file)])
    (first,) = json.loads(file.read_text())["rows"]
    servers.main(["--out", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert [row["server"] for row in rows] == list(both)
    assert rows[1] == first
    assert all(row["exact"] >= 2 and row["identified"] >= row["exact"] and row["null"] <= 2 for row in rows)
    assert rows[0]["expected"] == round(FrontLayer(64).expected_recovery(4), 1)
