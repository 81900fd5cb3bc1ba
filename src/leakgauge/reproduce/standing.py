"""How a row stands to what was published and to its null, and what its recipe has other than the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from leakgauge.catalogue import METRICS

Standing = Literal["reached", "at its null, as published", "short", "not reached", "above its null", "not compared"]
"""reached: within the published spread or above. short: above its null, below the published spread. not reached: at its
null, where the paper is above it or gives no number. above its null: no number was published. not compared: what has no
null, or was not measured. That a row was measured too roughly to be told from its null puts no paper there."""

_ENOUGH_PAIRS = 5
"""Of fewer the spread is too little known."""
_NO_DIRECTION = frozenset({"p_all", "p_other", "p_together"})
"""What is neither better nor worse for being larger: a p-value under its null is anything."""


def higher_is_leakier(metric: str) -> bool:
    """What the metric says of itself; what tables measure beside metrics tells more the larger it is."""
    return METRICS[metric].higher_is_leakier if metric in METRICS else True


def at_null(row: Mapping[str, Any], metric: str) -> bool:
    """Whether a row tells no more than an unrelated update: within two standard errors of the difference to its null.

    The row is as a result file has it. Victims that have each a null of their own are compared with it one by one, as
    some score high or low whatever is returned. Where one of the two was measured once it has no error and the other's
    counts alone; where both were, their images are compared one by one, and of a single image any difference in the
    direction of leakage counts.
    """
    ours, null = row["ours"].get(metric), row["null"].get(metric)
    if not _compared(metric, ours, null):
        return False
    return _ahead(ours["mean"], null["mean"], metric) <= 2 * _error(row, metric)


def standing(row: Mapping[str, Any], metric: str, first: str) -> Standing:
    """Where a row of a result file stands in one metric; ``first`` is the table's own."""
    ours, null = row["ours"].get(metric), row["null"].get(metric)
    if not _compared(metric, ours, null):
        return "not compared"
    given = row["published"] if metric == first else row["also_published"].get(metric)
    told = None if given is None else given["mean"]
    if at_null(row, metric):
        close = 0.0 if told is None else min(2 * _error(row, metric), _tolerance(given, null))
        failed = told is not None and _ahead(told, null["mean"], metric) <= close
        return "at its null, as published" if failed else "not reached"
    if told is None:
        return "above its null"
    return "reached" if _ahead(ours["mean"], told, metric) >= -_tolerance(given, ours) else "short"


def differences(here: Any, paper: Any, path: str = "") -> Iterator[str]:
    """What one recipe has other than another, part by part: where, what, and for what.

    >>> from leakgauge.models import ResNet
    >>> list(differences(ResNet(20, base_width=16), ResNet(20, base_width=64)))
    ['base_width 16 for 64']
    """
    if here == paper:
        return
    if is_dataclass(here) and type(here) is type(paper):
        for one in fields(here):
            yield from differences(
                getattr(here, one.name), getattr(paper, one.name), f"{path}.{one.name}" if path else one.name
            )
    elif isinstance(here, tuple) and isinstance(paper, tuple) and len(here) == len(paper):
        for number, (ours, theirs) in enumerate(zip(here, paper, strict=True)):
            yield from differences(ours, theirs, f"{path}[{number}]")
    else:
        yield f"{path} {here!r} for {paper!r}".strip()


def in_all(differing: Sequence[Sequence[str]]) -> list[str]:
    """What all rows have other than the paper, in the order of the first; of a single row nothing is shared.

    >>> in_all([["width 16 for 64", "steps 5 for 9"], ["width 16 for 64"]])
    ['width 16 for 64']
    """
    return [one for one in differing[0] if all(one in other for other in differing)] if len(differing) > 1 else []


def _compared(metric: str, ours: Mapping[str, Any] | None, null: Mapping[str, Any] | None) -> bool:
    known = ours is not None and null is not None and ours["mean"] is not None and null["mean"] is not None
    return known and metric not in _NO_DIRECTION


def _ahead(one: float, other: float, metric: str) -> float:
    return (one - other) * (1 if higher_is_leakier(metric) else -1)


def _error(row: Mapping[str, Any], metric: str) -> float:
    """Standard error of the difference to the null: over pairs where every victim has one, else of the two means.

    Two single updates have none; their images then give one, though they share what is theirs alone.
    """
    updates, nulls = ([_scores(one, metric) for one in row.get(side, ())] for side in ("updates", "nulls"))
    if _paired(updates, nulls) and row.get("models", 1) == 1:
        return _error_of_pairs([fmean(one) for one in updates], [fmean(one) for one in nulls])
    first, second = (row[side][metric]["standard_error"] or 0.0 for side in ("ours", "null"))
    if not first and not second and len(updates) == len(nulls) == 1 and _paired(updates[0], nulls[0]):
        return _error_of_pairs(updates[0], nulls[0])
    return float((first**2 + second**2) ** 0.5)


def _scores(update: Mapping[str, Any], metric: str) -> list[float]:
    """Of its images, or the one of the whole; none where some were not measured."""
    found = update.get("scores", {}).get(metric)
    scores = found if isinstance(found, list) else [found]
    return [] if None in scores else scores


def _paired(ours: Sequence[Any], nulls: Sequence[Any]) -> bool:
    """Whether every victim has a null of its own, and there are enough of them."""
    return len(ours) == len(nulls) >= _ENOUGH_PAIRS and [] not in (*ours, *nulls)


def _error_of_pairs(ours: Sequence[float], nulls: Sequence[float]) -> float:
    return stdev(one - other for one, other in zip(ours, nulls, strict=True)) / len(ours) ** 0.5


def _tolerance(given: Mapping[str, Any], measured: Mapping[str, Any]) -> float:
    """The published spread; where that is of a mean, or none is given, two standard errors of the difference."""
    if given["deviation"] is not None and given["spread"] == "standard deviation":
        return float(given["deviation"])
    return 2 * float(((given["deviation"] or 0.0) ** 2 + (measured["standard_error"] or 0.0) ** 2) ** 0.5)
