"""What an executor is."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from leakgauge.audit.case import Case
from leakgauge.audit.heartbeat import heard
from leakgauge.audit.record import Record
from leakgauge.audit.resumption import SNAPSHOT_EVERY
from leakgauge.audit.run import Metrics
from leakgauge.audit.store import Store
from leakgauge.progress import Progress, Watch, unwatched


@dataclass(frozen=True)
class Pack:
    """Cases that reach a worker in one piece, since they share their tensors, and what they are scored by."""

    cases: Sequence[Case]
    metrics: Metrics

    @property
    def num_parameters(self) -> int:
        """Of the largest model; it decides on threads, and so on digits."""
        return max((case.source.num_parameters for case in self.cases), default=0)

    @property
    def content(self) -> tuple[tuple[Case, ...], Metrics]:
        """All that a worker needs."""
        return tuple(self.cases), dict(self.metrics)

    def seal(self) -> bytes | None:
        """What it holds as bytes, to be sent; None where that cannot be."""
        try:
            return pickle.dumps(self.content)
        except Exception:  # a model of the user's own may refuse in any way: one with parametrisations does
            return None


class Executor(ABC):
    """Runs each case that the store does not hold yet, and keeps each result as soon as it is there.

    Wherever cases run, they give the same scores: a case has its seed and a model its number of threads. A case that
    fails is recorded as failed, is tried again by the next run, and stops no other. This process alone writes records.
    """

    def run(
        self,
        cases: Sequence[Case],
        metrics: Metrics,
        store: Store,
        watch: Watch = unwatched,
        snapshot_every: float = SNAPSHOT_EVERY,
    ) -> Iterator[Record]:
        """The records in the order of the cases, each as soon as it and those before it are there."""
        return self.run_packs([Pack(cases, metrics)], store, watch, snapshot_every)

    def run_packs(
        self,
        packs: Iterable[Pack],
        store: Store,
        watch: Watch = unwatched,
        snapshot_every: float = SNAPSHOT_EVERY,
    ) -> Iterator[Record]:
        """The same of packs that are asked for when workers run out of work, so that few are in memory at a time."""
        with store.driven(), heard(store, watch) as told:
            yield from self.work(packs, store, told, snapshot_every)

    @abstractmethod
    def work(self, packs: Iterable[Pack], store: Store, watch: Watch, snapshot_every: float) -> Iterator[Record]: ...


def shifted(watch: Watch, first: int) -> Watch:
    """Tells of cases that are counted from ``first`` on."""

    def of(index: int, title: str, slot: int = 0) -> Progress:
        return watch(first + index, title, slot)

    return of
