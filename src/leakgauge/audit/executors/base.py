"""What an executor is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from leakgauge.audit.case import Case
from leakgauge.audit.record import Record
from leakgauge.audit.resumption import SNAPSHOT_EVERY
from leakgauge.audit.run import Metrics
from leakgauge.audit.store import Store
from leakgauge.progress import Watch, unwatched


class Executor(ABC):
    """Runs each case that the store does not hold yet, and keeps each result as soon as it is there."""

    @abstractmethod
    def run(
        self,
        cases: Sequence[Case],
        metrics: Metrics,
        store: Store,
        watch: Watch = unwatched,
        snapshot_every: float = SNAPSHOT_EVERY,
    ) -> Iterator[Record]:
        """The records in the order of the cases, each as soon as it and those before it are there."""
