"""Time on two clocks: what was worked, and what was waited."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Seconds:
    """``cpu`` of the thread that works, ``wall`` as people wait.

    The thread's own: what other threads of the process do is not charged to it, be it another attack, a progress
    display or a data loader. The threads among which torch splits one operation are not added up either, so that a
    minute is what an idle machine takes for it, with however many threads; the thread takes part in every operation,
    and is waiting for the others where it does not.

    >>> Seconds(3.0, 5.0) - Seconds(1.0, 1.5)
    Seconds(cpu=2.0, wall=3.5)
    """

    cpu: float = 0.0
    wall: float = 0.0

    @classmethod
    def now(cls) -> Seconds:
        """A reading, to be subtracted from a later one of the same thread."""
        return cls(time.thread_time(), time.perf_counter())

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.cpu + other.cpu, self.wall + other.wall)

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(self.cpu - other.cpu, self.wall - other.wall)
