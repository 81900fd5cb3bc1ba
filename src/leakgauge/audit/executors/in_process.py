"""Cases one after another, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from leakgauge.audit.executors.base import Executor, Pack
from leakgauge.audit.record import Record
from leakgauge.audit.run import recall_answer, run_safely
from leakgauge.audit.store import Store
from leakgauge.progress import Watch
from leakgauge.threads import suitable_threads


@dataclass(frozen=True)
class InProcess(Executor):
    def work(self, packs: Iterable[Pack], store: Store, watch: Watch, snapshot_every: float) -> Iterator[Record]:
        places = count()
        for pack in packs:
            for case in pack.cases:
                index = next(places)
                record = recall_answer(case.key, pack.metrics, store)
                if record is None:
                    with suitable_threads(pack.num_parameters):
                        record = run_safely(case, pack.metrics, watch(index, case.title), store, snapshot_every)
                    store.put(record)
                store.drop_snapshot(case.key)
                yield record
