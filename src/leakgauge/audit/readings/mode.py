"""Train or eval mode."""

from __future__ import annotations

from collections.abc import Iterator

from leakgauge.audit.declaration import redeclare
from leakgauge.audit.readings.base import RoundReading, Seen


def read_mode(seen: Seen) -> Iterator[RoundReading]:
    """The other mode, where BatchNorm makes a difference."""
    if not seen.learner.batch_norm_layers():
        return
    other = "eval" if seen.recorded.mode == "train" else "train"
    corrected = redeclare(seen.recorded, {"mode": other})
    changes = {"mode": other, "batch_norm": corrected.batch_norm, "update": corrected.update}
    yield seen.reading.otherwise("mode", f"the client was in {other} mode", (("--mode", other),), **changes)
