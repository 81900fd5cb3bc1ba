"""How much memory there is, and how much a case takes."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from pathlib import Path

from leakgauge.audit.case import Case
from leakgauge.errors import InvalidCase
from leakgauge.input_space import InputSpace

WORKER = 400 << 20
"""Bytes of a worker that has imported torch and opened a pack; measured: 330 MB."""
_COPIES = 24
"""Copies of a model's weights that an attack holds at most: update, gradients, the optimiser's memory and the graph."""
_INPUT_COPIES = 50
"""Copies of the inputs that an attack which searches for them holds: candidates, gradients, the optimiser's memory."""
MOST_INPUTS = 1 << 16
"""Of one update that an attack searches for; with more it has no end, whatever there is of memory."""
_SHARE = 0.9
_CGROUP = Path("/sys/fs/cgroup")


def available() -> float:
    """Bytes that can still be had, also where a container has less than its machine; inf where nobody says."""
    found = [math.inf]
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        found += [int(line.split()[1]) * 1024.0 for line in lines if line.startswith("MemAvailable")]
    with suppress(OSError, ValueError):  # "max" where there is no limit
        limit, used = ((_CGROUP / name).read_text("ascii") for name in ("memory.max", "memory.current"))
        found.append(float(int(limit) - int(used)))
    return min(found)


def peak() -> int:
    """The most bytes that this process has held so far; 0 where nobody says."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def needed(case: Case) -> float:
    """About how many bytes a worker takes at a case of which nothing is known but its model."""
    return WORKER + _COPIES * 4.0 * case.source.num_parameters


def check_inputs(count: int, space: InputSpace) -> None:
    """Refuse, before anything is allocated, to search for more inputs than there is room for: a file may say any
    number."""
    wanted, there = _INPUT_COPIES * 4.0 * count * math.prod(space.shape), available()
    if count > MOST_INPUTS or wanted > there:
        raise InvalidCase(
            f"To search for {count} {space.kinds} of {'x'.join(map(str, space.shape))} takes about {wanted / 1e9:.1f} "
            f"GB, and there are {there / 1e9:.1f}, for {MOST_INPUTS} at most; check how many the update says it "
            "covers, or restore its labels alone with `leakgauge labels`."
        )


class MemoryLimit:
    """Lets cases run side by side as far as they fit; what an attack took on a model is remembered for the next."""

    def __init__(self, limit: float | None = None) -> None:
        self._limit = _SHARE * available() if limit is None else limit
        self._seen: dict[tuple[str, int], float] = {}

    def need(self, case: Case) -> float:
        return self._seen.get(_kind(case), needed(case))

    def note(self, case: Case, took: int) -> None:
        if took:
            self._seen[_kind(case)] = max(float(took), self._seen.get(_kind(case), 0.0))

    def fits(self, case: Case, *beside: Case) -> bool:
        """Whether there is room for a case beside those under way; alone, whatever it needs."""
        return not beside or sum(map(self.need, (case, *beside))) <= self._limit


def _kind(case: Case) -> tuple[str, int]:
    return case.attack_name, case.source.num_parameters
