"""What survives in a sum of clients."""

from __future__ import annotations

import aggregation


def test_a_row_has_images_and_labels_each_beside_a_null(monkeypatch):
    monkeypatch.setattr(aggregation, "STEPS", 20)
    row = aggregation.measured(2, rounds=1)
    assert (row["clients"], row["updates"]) == (2, 1)
    assert row["labels"] == 1  # of eight digits, out of the sum of two clients
    assert 0 < row["guess"] < 1
    assert row["psnr"] > row["psnr_null"]
    assert row["identified_null"] == 0
