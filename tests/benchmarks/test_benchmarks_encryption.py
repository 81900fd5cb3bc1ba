"""The time to encrypt."""

from __future__ import annotations

import json

import encryption


def test_the_loop_and_the_vectorised_encryption_make_the_same_encodings(tmp_path, capsys):
    file = tmp_path / "encryption.json"
    words = ["--images", "40", "--loop", "5", "--rounds", "1", "--threads", "1", "--patches", "0", "--no-training"]
    encryption.main([*words, "--out", str(file)])
    result = json.loads(file.read_text())
    assert result["command"].endswith("--rounds 1 --threads 1 --no-training")
    loops = [row for row in result["rows"] if row["what"].startswith("loop")]
    assert [row["measured_on"] for row in loops] == [5, 5]
    assert all(row["difference"] < 1e-6 for row in loops)
    assert "times_slower" in capsys.readouterr().out
