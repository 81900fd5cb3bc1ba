"""Where crops are cut from a photograph: square windows in columns that belong to one split only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

STRIDES_PER_SIDE = 4


class Window(NamedTuple):
    """A square of pixels."""

    top: int
    left: int
    side: int


class SplitColumns(NamedTuple):
    """The columns of a photograph that each split may cut from."""

    test: tuple[range, ...]
    train: tuple[range, ...]


def split_columns(width: int) -> SplitColumns:
    """Test has the columns from 25 % to 60 % of the width, train those to the left and to the right.

    >>> split_columns(200)
    SplitColumns(test=(range(50, 120),), train=(range(0, 50), range(120, 200)))
    """
    start, stop = width * 25 // 100, width * 60 // 100
    return SplitColumns(test=(range(start, stop),), train=(range(start), range(stop, width)))


def windows(height: int, columns: range, sides: Sequence[int]) -> Iterator[Window]:
    """The squares of these sides on a regular grid over the columns, none crossing their border.

    >>> list(windows(4, range(10, 15), [4]))
    [Window(top=0, left=10, side=4), Window(top=0, left=11, side=4)]
    """
    for side in sides:
        stride = max(side // STRIDES_PER_SIDE, 1)
        for top in range(0, height - side + 1, stride):
            for left in range(columns.start, columns.stop - side + 1, stride):
                yield Window(top, left, side)


def thin(candidates: Sequence[Window], at_most: int) -> tuple[Window, ...]:
    """At most so many of the windows, evenly spaced in their order."""
    kept = min(len(candidates), at_most)
    return tuple(candidates[index * len(candidates) // kept] for index in range(kept))
