"""What the client minimises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.nn.functional import one_hot

from leakgauge.audit.readings.base import RoundReading, Seen

_WORDS = {
    "cross_entropy": "cross-entropy",
    "cross_entropy:label_smoothing=0.1": "cross-entropy with labels smoothed by 0.1",
    "bce": "binary cross-entropy of its one score",
    "multi_label": "binary cross-entropy of each score",
    "mse": "the squared error",
}


def read_loss(seen: Seen) -> Iterator[RoundReading]:
    """The losses that fit the number of scores; classes are then tags, or values, of which one is 1."""
    one = ("bce", "mse")
    several = ("cross_entropy", "cross_entropy:label_smoothing=0.1", "multi_label", "mse")
    labels = seen.recorded.labels
    for name in one if seen.outputs == 1 else several:
        if name == (seen.recorded.loss or ("bce" if seen.outputs == 1 else "cross_entropy")):
            continue
        changes: dict[str, Any] = {"loss": name}
        if labels is not None and labels.ndim == 1 and seen.outputs > 1 and name in ("multi_label", "mse"):
            changes["labels"] = one_hot(labels.long(), seen.outputs).float()
        yield seen.reading.otherwise("loss", f"the client minimises {_WORDS[name]}", (("--loss", name),), **changes)
