"""An attack that outlives its process: driven step by step, with a snapshot now and then and at Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, cast

import torch
from torch import Generator, Tensor

from leakgauge.audit.store import Store
from leakgauge.errors import InvalidFile
from leakgauge.progress import Progress, Tick
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.types import Outcome, Reconstruction

SNAPSHOT_EVERY = 30.0
"""Seconds of work that a killed process may lose."""

_ELAPSED = "audit.seconds"

Snapshot = Mapping[str, Tensor]


class Search(Protocol):
    """An attack under way; ``trace`` has one entry per step, ``outcome`` is None until it ends.

    ``restore`` refuses with `InvalidFile` what is no snapshot of this very attack: names, types and sizes.
    """

    @property
    def trace(self) -> list[Tensor]: ...

    @property
    def outcome(self) -> Outcome | None: ...

    def step(self) -> Tick: ...

    def results(self) -> list[Reconstruction]: ...

    def snapshot(self) -> Snapshot: ...

    def restore(self, snapshot: Snapshot) -> None: ...


class Resumable(Protocol):
    """An attack that can be stepped, kept and continued."""

    def search(self, observations: Sequence[UpdateObservation], *, generator: Generator) -> Search: ...


def resumable(attack: object) -> Resumable | None:
    """The attack, if it can be stepped; one that wraps another can if that other can."""
    return cast("Resumable", attack) if callable(getattr(attack, "search", None)) else None


def attack_resumably(
    start: Callable[[], Search], progress: Progress, store: Store, key: str, every: float
) -> tuple[Reconstruction, float]:
    """The result, and the seconds that went into it in processes before this one."""
    began = time.perf_counter()
    search, before = _resumed(start, store.snapshot(key))

    def keep() -> None:
        elapsed = torch.tensor(before + time.perf_counter() - began, dtype=torch.float64)
        # A full disk shall not end an attack that could still finish.
        with suppress(InvalidFile):
            store.keep_snapshot(key, {**search.snapshot(), _ELAPSED: elapsed})

    done, kept = len(search.trace), began
    try:
        while search.outcome is None:
            tick = search.step()
            done = tick.step
            if search.outcome is None and time.perf_counter() - kept >= every:
                keep()
                kept = time.perf_counter()
            progress(tick)
    except KeyboardInterrupt:
        # A step that was torn apart cannot be continued: then the snapshot before it stands.
        if search.outcome is None and len(search.trace) == done:
            keep()
        raise
    return search.results()[0], before


def _resumed(start: Callable[[], Search], kept: Snapshot | None) -> tuple[Search, float]:
    """The search as far as the snapshot came; at its start if there is none, or one of something else."""
    search = start()
    elapsed = None if kept is None else kept.get(_ELAPSED)
    if kept is None or elapsed is None or elapsed.shape != () or elapsed.dtype != torch.float64:
        return search, 0.0
    try:
        search.restore({name: tensor for name, tensor in kept.items() if name != _ELAPSED})
    except InvalidFile:
        return start(), 0.0
    return search, float(elapsed)
