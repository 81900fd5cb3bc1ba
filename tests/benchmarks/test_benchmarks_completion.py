"""What a pruned layer gives away is measured with its null."""

from __future__ import annotations

import json

import completion


def test_a_pruned_layer_is_completed_and_noise_is_not(tmp_path):
    file = tmp_path / "completion.json"
    completion.main(
        ["--dataset", "photos:size=32", "--first", "0", "--updates", "1", "--cells", "2", "--out", str(file)]
    )
    result = json.loads(file.read_text())
    assert [row["keep"] for row in result["rows"]] == [0.3, 0.1]
    for row in result["rows"]:
        assert row["known"] > 2 * row["sent"] == 2 * row["null_known"]
        assert row["error"] < 1e-4
        assert row["energy"] > 0.9
