"""Which way the update points, and which weights it starts from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from leakgauge.audit.declaration import CORRECTIONS
from leakgauge.audit.readings.base import RoundReading, Seen

_WORDS: Mapping[str, str] = {
    "reversed": "the sign of the update is reversed: after minus before",
    "swapped": "the weights before and after training are swapped",
    "after": "the recorded weights are those after training, not before it",
}


def read_direction(seen: Seen) -> Iterator[RoundReading]:
    """After minus before; the two dicts swapped; or the right difference beside the weights after training."""
    for name, words in _WORDS.items():
        corrected = CORRECTIONS[name](seen.recorded)
        changes = {"update": corrected.update, "state": corrected.state}
        yield seen.reading.otherwise("direction", words, (("--read", name),), **changes)
