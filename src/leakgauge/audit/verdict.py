"""The rule by which leakage is judged, of images and of labels; there is no other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum

from leakgauge.metrics import Summary, beyond_chance

_SIGNIFICANT = 0.05


class Verdict(Enum):
    """What the evidence says, gravest first. There is no "safe": an audit bounds leakage from below."""

    LEAKS = "leaks"
    """At least half of the private examples can be picked out of a crowd by what came back."""
    LEAKS_PARTLY = "leaks partly"
    """Some can, more than chance explains."""
    NO_LEAK_FOUND = "no leak found"
    """What came back says no more than the same attack on an unrelated update."""
    NOT_JUDGED = "not judged"
    """There was nothing to compare with."""

    @property
    def leaks(self) -> bool:
        return self in (Verdict.LEAKS, Verdict.LEAKS_PARTLY)


def judge(identified: Summary, null: Summary, chance: float) -> Verdict:
    """Identified more often than chance and than the null explain, by an exact binomial test."""
    if not identified.count or math.isnan(chance):
        return Verdict.NOT_JUDGED
    null_rate = null.mean if null.count else 0.0
    if _by_chance(identified, min(max(chance, null_rate), 1.0)) >= _SIGNIFICANT:
        return Verdict.NO_LEAK_FOUND
    return Verdict.LEAKS if identified.mean >= 0.5 else Verdict.LEAKS_PARTLY


def labels_leak(recall: Summary, null: Summary, guess: float) -> bool:
    """More labels restored than guessing and the null explain.

    The guess is exact, so the binomial test is against it; the null, one other batch, must be exceeded as well.
    """
    return _by_chance(recall, guess) < _SIGNIFICANT and not recall.mean <= null.mean


def gravest(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=list(Verdict).index, default=Verdict.NOT_JUDGED)


def _by_chance(seen: Summary, chance: float) -> float:
    return beyond_chance(round(seen.mean * seen.count), seen.count, chance)
