"""How large a table is run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar, get_args

Scale = Literal["smoke", "cpu", "long", "full"]
"""smoke: seconds, to see that it runs; cpu: up to an hour on one core; long: hours on one core, fewer
images and smaller models, on which a search ends where the paper's does; full: the paper's own numbers, for a GPU."""

SCALES: tuple[Scale, ...] = get_args(Scale)

T = TypeVar("T")


def at_scale(choices: Mapping[Scale, T], scale: Scale) -> T:
    """What is chosen for a scale: for ``long`` what is for ``cpu``, where nothing else is.

    >>> at_scale({"cpu": 2, "full": 9}, "long"), at_scale({"cpu": 2, "long": 5, "full": 9}, "long")
    (2, 5)
    """
    return choices["cpu" if scale == "long" and "long" not in choices else scale]
