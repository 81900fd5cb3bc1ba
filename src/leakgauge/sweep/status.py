"""How far a run is, read from its folder by whoever asks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from leakgauge.audit.store import FolderStore
from leakgauge.sweep.results import latest_runs


@dataclass(frozen=True)
class SweepStatus:
    """``running`` are the cases under way, as the driver last told; empty where no driver lives.

    ``cells`` is None for an audit of its own; ``left`` are the seconds that the cases known so far will take, by those
    that are done; None where that cannot be told.
    """

    alive: bool
    process: int | None
    machine: str | None
    cells: int | None
    begun: int
    refused: int
    cases: int
    done: int
    failed: int
    running: tuple[dict[str, Any], ...]
    left: float | None

    @property
    def complete(self) -> bool:
        return self.done == self.cases and (self.cells is None or self.begun + self.refused == self.cells)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "running": list(self.running), "complete": self.complete}


def status_of(store: FolderStore) -> SweepStatus:
    runs = latest_runs(store)
    sweeps = [run["description"]["sweep"] for run in runs if "sweep" in run["description"]]
    refused = sum("refused" in run["description"] for run in runs)
    keys = {key for run in runs for key in run["keys"]}
    counts = store.count(keys)
    alive, news = store.is_driven(), store.news()
    running = tuple(news.get("running", ())) if alive else ()
    left = None
    if counts.done and running:
        left = counts.seconds / counts.done * (len(keys) - counts.done) / len(running)
    return SweepStatus(
        alive=alive,
        process=news.get("process") if alive else None,
        machine=news.get("machine") if alive else None,
        cells=sweeps[0]["cells"] if sweeps else None,
        begun=len(runs) - refused,
        refused=refused,
        cases=len(keys),
        done=counts.done,
        failed=counts.failed,
        running=tuple({**one, "for": round(time.time() - one["since"], 1)} for one in running),
        left=left,
    )
