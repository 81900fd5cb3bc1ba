"""What a run tells whoever asks from another shell: which cases are under way, and how far they have come."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leakgauge.audit.store import Store
from leakgauge.files import finite
from leakgauge.progress import Progress, Tick, Watch

_EVERY = 1.0
"""Seconds between two tellings."""


@contextmanager
def heard(store: Store, watch: Watch) -> Iterator[Watch]:
    """The same watch, of which the store hears as well."""
    who = {"process": os.getpid(), "machine": platform.node(), "started": time.time()}
    running: dict[int, dict[str, Any]] = {}
    told = 0.0

    def tell() -> None:
        nonlocal told
        if time.monotonic() - told >= _EVERY:
            told = time.monotonic()
            store.tell(who | {"told": time.time(), "running": list(running.values())})

    def of(index: int, title: str, slot: int = 0) -> Progress:
        progress = watch(index, title, slot)
        running[slot] = {"case": index, "title": title, "since": time.time(), "step": 0, "share": 0.0, "loss": None}
        tell()

        def tick(tick: Tick) -> None:
            running[slot] |= {"step": tick.step, "share": tick.fraction, "loss": finite(tick.loss)}
            tell()
            progress(tick)

        return tick

    yield of
