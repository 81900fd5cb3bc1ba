"""An attack that outlives its process: driven step by step, with a snapshot now and then and at Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple

import torch

from leakgauge.attacks.base import Snapshot, Stepper
from leakgauge.audit.store import Store
from leakgauge.clocks import Seconds
from leakgauge.errors import InvalidFile
from leakgauge.progress import Progress
from leakgauge.types import Reconstruction

SNAPSHOT_EVERY = 30.0
"""Seconds of work that a killed process may lose."""

_ELAPSED = "audit.seconds"


def attack_resumably(
    start: Callable[[], Stepper], progress: Progress, store: Store, key: str, every: float
) -> tuple[Reconstruction, Seconds]:
    """The result, and the seconds that went into it in processes before this one."""
    began = Seconds.now()
    search, before = _resume(start, store.snapshot(key))

    def keep() -> None:
        elapsed = torch.tensor(astuple(before + (Seconds.now() - began)), dtype=torch.float64)
        # A full disk shall not end an attack that could still finish.
        with suppress(InvalidFile):
            store.keep_snapshot(key, {**search.snapshot(), _ELAPSED: elapsed})

    done, kept = search.steps, began.wall
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
        if search.outcome is None and search.steps == done:
            keep()
        raise
    return search.results()[0], before


def _resume(start: Callable[[], Stepper], kept: Snapshot | None) -> tuple[Stepper, Seconds]:
    """The search as far as the snapshot came; at its start if there is none, or one of something else."""
    search = start()
    elapsed = None if kept is None else kept.get(_ELAPSED)
    if kept is None or elapsed is None or elapsed.shape != (2,) or elapsed.dtype != torch.float64:
        return search, Seconds()
    try:
        search.restore({name: tensor for name, tensor in kept.items() if name != _ELAPSED})
    except InvalidFile:
        return start(), Seconds()
    return search, Seconds(*elapsed.tolist())
