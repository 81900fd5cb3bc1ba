"""The time to restore labels."""

from __future__ import annotations

import json

import torch

import labels


def test_both_rules_are_timed_on_heads_whose_labels_they_restore(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)  # other tests count on one
    out = tmp_path / "labels.json"
    sizes = ["--classes", "10", "50", "--examples", "64", "--features", "48"]
    labels.main([*sizes, "--rounds", "1", "--json", "--out", str(out)])
    printed, _ = capsys.readouterr()
    result = json.loads(printed)
    assert result == json.loads(out.read_text())
    assert result["command"] == (
        "python benchmarks/labels.py --classes 10 50 --examples 64 --features 48 --rounds 1 --threads 2"
    )
    assert [(row["rule"], row["classes"]) for row in result["rows"]] == [
        ("ILRG", 10),
        ("Alternating", 10),
        ("ILRG", 50),
        ("Alternating", 50),
    ]
    for row in result["rows"]:
        assert (row["examples"], row["features"], row["recall"]) == (64, 48, 1.0)
        assert min(row["estimate_ms"], row["restore_ms"]) > 0


def test_the_default_command_names_no_sizes_and_the_table_shows_every_row(capsys, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    for name, size in (("CLASSES", (5,)), ("EXAMPLES", (8,)), ("FEATURES", (16,))):
        monkeypatch.setattr(labels, name, size)
    labels.main(["--rounds", "1"])
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["rule", "classes", "examples", "features"]
    assert [row.split()[:4] for row in rows] == [[rule, "5", "8", "16"] for rule in ("ILRG", "Alternating")]
    labels.main(["--rounds", "1", "--json"])
    assert json.loads(capsys.readouterr().out)["command"] == "python benchmarks/labels.py --rounds 1 --threads 2"


def test_the_update_that_is_timed_is_a_clients_and_does_not_hold_its_labels():
    seen, true = labels.prepare(7, 20, 12)
    assert seen.labels is None
    assert (seen.num_examples, len(true)) == (20, 20)
    assert {tuple(tensor.shape) for tensor in seen.update.params.values()} == {(7, 12), (7,)}
    again, same = labels.prepare(7, 20, 12)
    assert torch.equal(true, same)
    assert all(torch.equal(tensor, again.update.params[name]) for name, tensor in seen.update.params.items())
