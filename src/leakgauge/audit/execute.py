"""An audit that was prepared: run, kept as it goes, and reported."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leakgauge.audit.case import Case
from leakgauge.audit.executors import Executor, InProcess
from leakgauge.audit.result import AuditResult, summarise_records, summarise_stored
from leakgauge.audit.resumption import SNAPSHOT_EVERY
from leakgauge.audit.run import Metrics, recall
from leakgauge.audit.store import FolderStore, MemoryStore
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, Watch, silent, unwatched
from leakgauge.threads import suitable_threads
from leakgauge.types import Outcome


@dataclass(frozen=True)
class PreparedAudit:
    """A plan made concrete: cases to run, and the description that reruns them."""

    cases: Sequence[Case]
    metrics: Metrics
    description: dict[str, Any]

    def with_report(self, *, redact: bool | None) -> PreparedAudit:
        """The same with a wish for its report, which is kept with the run; None leaves it to the report."""
        return self if redact is None else replace(self, description=self.description | {"redact": redact})

    def keys(self, progress: Progress = silent) -> list[str]:
        """The key of each case. To know it runs its client once, and only once, whoever asks again."""
        found = []
        with self.threads():
            for number, case in enumerate(self.cases, start=1):
                found.append(case.key)
                progress(Tick(number, number / len(self.cases)))
        return found

    def threads(self) -> AbstractContextManager[None]:
        return suitable_threads(max(case.source.num_parameters for case in self.cases))


def execute(
    prepared: PreparedAudit,
    out: Path | None,
    watch: Watch = unwatched,
    snapshot_every: float = SNAPSHOT_EVERY,
    executor: Executor = InProcess(),
) -> AuditResult:
    """Run the cases and keep what finishes, in ``out`` if given; interrupted, the finished part is still reported."""
    cases, description, complete = prepared.cases, prepared.description, True
    records = []
    with prepared.threads():
        keys = prepared.keys()  # first, as this runs each client: what fails there leaves no folder
        store = MemoryStore() if out is None else FolderStore.create(out)
        if isinstance(store, FolderStore):
            store.begin_run(description, keys)
        try:
            for record in executor.run(cases, prepared.metrics, store, watch, snapshot_every):
                records.append(record)
        except KeyboardInterrupt:
            # From the store: the interruption may have come between keeping a result and handing it over.
            records = [kept for key in keys if (kept := store.get(key)) is not None]
            complete = len(records) == len(keys)
            if not records:
                raise
    if records and all(record.outcome is Outcome.FAILED for record in records):
        raise InvalidCase(records[0].reason)
    result = summarise_records(records, description, complete=complete)
    if out is not None and result.rows:
        result.write_report(out)
    return result


def load_result(folder: Path, metrics: Metrics, progress: Progress = silent) -> AuditResult:
    """The last run kept in a folder, as far as it got."""
    store = FolderStore.open(folder)
    runs = store.runs()
    if not runs:
        raise InvalidCase(f"{folder} holds no finished audit; run `leakgauge audit --out {folder}` again.")
    last = runs[-1]
    records = []
    for number, key in enumerate(last["keys"], start=1):
        if (record := recall(key, metrics, store)) is not None:
            records.append(record)
        progress(Tick(number, number / (len(last["keys"]) + 1)))  # the page is one piece more
    if not records:
        raise InvalidCase(f"The audit in {folder} was stopped before its first result; run it again.")
    return summarise_stored(records, last, folder)
