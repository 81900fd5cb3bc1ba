"""Long work that outlives its process: kept on the way, and gone on with by whoever runs it again."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from leakgauge.errors import InvalidFile
from leakgauge.files import read_tensors, writable_folder, write_tensors
from leakgauge.progress import Progress, Tick, silent

CHECKPOINT_EVERY = 30.0
"""Seconds of work that a killed process may lose."""


class Resumable(ABC):
    """Work in steps, whose state is a few tensors."""

    @property
    @abstractmethod
    def done(self) -> int:
        """How many steps were made."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many there are in all."""

    @property
    def over(self) -> bool:
        return self.done >= self.steps

    @abstractmethod
    def step(self) -> None: ...

    @abstractmethod
    def snapshot(self) -> dict[str, Tensor]:
        """All that has changed since the start, as plain tensors."""

    @abstractmethod
    def restore(self, snapshot: Mapping[str, Tensor]) -> None:
        """Go on where ``snapshot`` was taken, in this process or another; refuse that of other work."""


def run_kept(
    work: Resumable,
    path: Path,
    described: Mapping[str, str],
    progress: Progress = silent,
    every: float = CHECKPOINT_EVERY,
) -> None:
    """Work to the end, from the checkpoint of the same description if there is one; Ctrl-C keeps what was done."""
    if path.is_file():
        with suppress(InvalidFile):  # a damaged checkpoint costs the work since the start, never the work itself
            tensors, before = read_tensors(path)
            if {name: before.get(name) for name in described} == described:
                work.restore(tensors)
    writable_folder(path.parent)
    resumed, kept = work.done, time.perf_counter()
    try:
        while not work.over:
            work.step()
            if time.perf_counter() - kept >= every:
                write_tensors(path, work.snapshot(), described)
                kept = time.perf_counter()
            progress(Tick(work.done, work.done / work.steps))
    finally:
        if work.done > resumed:
            write_tensors(path, work.snapshot(), described)
