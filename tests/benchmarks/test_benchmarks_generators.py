"""Speed and memory of generators."""

from __future__ import annotations

import json

import generators


def test_the_benchmark_of_generators_keeps_speed_and_memory_and_a_checkpointed_one_needs_less(tmp_path):
    file, model = tmp_path / "generators.json", "lenet:width=2,batch_norm=True"
    generators.main(["--batches", "64", "128", "--model", model, "--size", "8", "--rounds", "1", "--out", str(file)])
    rows = {(row["space"], row["batch_size"]): row for row in json.loads(file.read_text())["rows"]}
    assert len(rows) == 6
    assert all(row["steps_per_second"] > 0 for row in rows.values())
    for batch in (64, 128):
        kept = rows["generator", batch]["peak_mib"]
        assert rows["generator, checkpointed", batch]["peak_mib"] < 0.8 * kept
    assert rows["generator", 128]["peak_mib"] <= 2 * rows["generator", 64]["peak_mib"]
