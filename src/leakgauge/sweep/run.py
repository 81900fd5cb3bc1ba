"""A grid that is run: cell by cell as workers ask for work, so that few cells are in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leakgauge.audit.executors import Executor, InProcess, Pack
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.resumption import SNAPSHOT_EVERY
from leakgauge.audit.store import FolderStore
from leakgauge.config import build_dataset, build_loss
from leakgauge.errors import LeakGaugeError
from leakgauge.files import folder_inside, write_tensors
from leakgauge.fingerprint import digest, training_code
from leakgauge.progress import Progress, silent
from leakgauge.sweep.grid import SweepCell, SweepGrid
from leakgauge.training import victim_model
from leakgauge.training.models import default_steps
from leakgauge.types import Outcome


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is: cells that were prepared or refused, and cases among those prepared that are done."""

    cells: int
    prepared: int = 0
    refused: int = 0
    cases: int = 0
    done: int = 0
    failed: int = 0
    complete: bool = False
    doing: str = ""

    @property
    def fraction(self) -> float:
        """Of the whole, as if the cells to come were like those before."""
        known = self.prepared + self.refused
        return 0.0 if not self.cases or not known else self.done / self.cases * known / self.cells


def run_sweep(
    grid: SweepGrid,
    out: Path,
    executor: Executor = InProcess(),
    told: Callable[[SweepProgress], None] = lambda news: None,
    snapshot_every: float = SNAPSHOT_EVERY,
) -> SweepProgress:
    """Run all cells into a folder; interrupted, what is done is kept, and a second call goes on.

    A cell that makes no sense is noted with its reason and stops no other.
    """
    cells = list(grid.cells())
    store = FolderStore.create(out)
    progress = SweepProgress(len(cells))
    known = {json.dumps(run["description"], sort_keys=True): run["keys"] for run in store.runs()}

    def note(**changes: Any) -> None:
        nonlocal progress
        progress = replace(progress, **changes)
        told(progress)

    def begin(cell: SweepCell, description: dict[str, Any], keys: list[str]) -> None:
        described = description | {"sweep": {"place": dict(cell.place), "cells": len(cells), "grid": grid.words()}}
        if known.get(json.dumps(described, sort_keys=True)) != keys:
            store.begin_run(described, keys)

    def packs() -> Iterator[Pack]:
        for cell in cells:
            note(doing=f"preparing {cell.name}")
            try:
                prepared = prepare(_trained(cell.plan(), out, lambda tick: note(doing=f"training for {cell.name}")))  # noqa: B023
                keys = [case.key for case in prepared.cases]
            except LeakGaugeError as refusal:
                begin(cell, {"refused": str(refusal)}, [])
                note(refused=progress.refused + 1)
                continue
            begin(cell, prepared.description, keys)
            note(prepared=progress.prepared + 1, cases=progress.cases + len(keys))
            yield Pack(prepared.cases, prepared.metrics)

    def watch(index: int, title: str, slot: int = 0) -> Progress:
        del index, slot
        note(doing=title)
        return silent

    try:
        for record in executor.run_packs(packs(), store, watch, snapshot_every):
            failure = record.outcome is Outcome.FAILED
            note(done=progress.done + 1, failed=progress.failed + failure)
    except KeyboardInterrupt:
        return progress
    return replace(progress, complete=True, doing="")


def steps_before(plan: AuditPlan) -> int:
    """How long the model of a cell is trained before it is attacked."""
    return default_steps(plan.model, plan.state) if plan.train_steps is None else plan.train_steps


def _trained(plan: AuditPlan, out: Path, progress: Progress) -> AuditPlan:
    """The same plan with the weights that its training ends with, in a file that all cells of that training share."""
    steps = steps_before(plan)
    if not steps:
        return plan
    dataset, loss = build_dataset(plan.dataset, plan.data_root), build_loss(plan.loss)
    if not len(dataset.train):
        return plan
    fresh = victim_model(plan.model, dataset, seed=plan.seed, state=plan.state, steps=0, normalise=plan.normalise)
    words = (training_code(), plan.dataset, plan.model, plan.loss, repr(plan.normalise))
    key = digest(words, (*fresh.state_dict().values(), dataset.train.labels), (steps, plan.seed))
    path = folder_inside(out, "models") / f"{key}.safetensors"
    if not path.is_file():
        model = victim_model(
            plan.model,
            dataset,
            seed=plan.seed,
            state=plan.state,
            steps=steps,
            loss=loss,
            normalise=plan.normalise,
            progress=progress,
        )
        write_tensors(path, model.state_dict())
    return replace(plan, state=str(path), train_steps=0)
