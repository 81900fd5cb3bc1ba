"""How far work has come: the one vocabulary of everything that can be watched."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Tick(NamedTuple):
    """How far a piece of work has come; ``loss`` is NaN where there is none."""

    step: int
    fraction: float
    loss: float = float("nan")


class Progress(Protocol):
    def __call__(self, tick: Tick) -> None: ...


def silent(tick: Tick) -> None:
    """Report progress to nobody."""


class Watch(Protocol):
    """Who is told of each piece of work as it begins, and how it goes on.

    Pieces of one ``slot`` follow one another, those of other slots run beside them.
    """

    def __call__(self, index: int, title: str, slot: int = 0) -> Progress: ...


def unwatched(index: int, title: str, slot: int = 0) -> Progress:
    del index, title, slot
    return silent
