"""Cases one after another, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leakgauge.audit.case import Case
from leakgauge.audit.executors.base import Executor
from leakgauge.audit.record import Record
from leakgauge.audit.resumption import SNAPSHOT_EVERY
from leakgauge.audit.run import Metrics, recall, run_case
from leakgauge.audit.store import Store
from leakgauge.progress import Watch, unwatched


@dataclass(frozen=True)
class InProcess(Executor):
    def run(
        self,
        cases: Sequence[Case],
        metrics: Metrics,
        store: Store,
        watch: Watch = unwatched,
        snapshot_every: float = SNAPSHOT_EVERY,
    ) -> Iterator[Record]:
        for index, case in enumerate(cases):
            record = recall(case.key, metrics, store)
            if record is None:
                record = run_case(case, metrics, watch(index, case.title), store, snapshot_every)
                store.put(record)
            store.drop_snapshot(case.key)
            yield record
