"""Cases side by side, each in a process of its own: attacks on small models leave all cores but one idle."""

from __future__ import annotations

import math
import os
import pickle
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from leakgauge.audit.case import Case
from leakgauge.audit.executors.base import Executor
from leakgauge.audit.executors.in_process import InProcess
from leakgauge.audit.record import Record
from leakgauge.audit.resumption import SNAPSHOT_EVERY
from leakgauge.audit.run import Metrics, recall, run_case
from leakgauge.audit.store import FolderStore, Store
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, Watch, silent, unwatched
from leakgauge.threads import is_small

PATIENCE = 10.0
"""Seconds of work from which the start of further processes pays: each imports torch."""

_TELL_EVERY = 0.2
_WORDS_OF_FAILURE = (
    "The process that ran {name} ended without a result, maybe for want of memory; try again with --jobs 1."
)


def cores() -> int:
    """How many processors this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def executor_for(jobs: int | None) -> Executor:
    """So many cases at once from the start; without a number one per core, when it pays."""
    return Processes(cores()) if jobs is None else Processes(jobs, 0.0)


@dataclass(frozen=True)
class Processes(Executor):
    """``jobs`` cases at once, each in its own process, after ``patience`` seconds of one after another.

    One after another to the end where side by side is of no use or not possible: a large model keeps all cores busy by
    itself, a store in memory cannot be shared, and not every model or attack can be sent to another process.
    """

    jobs: int
    patience: float = PATIENCE

    def run(
        self,
        cases: Sequence[Case],
        metrics: Metrics,
        store: Store,
        watch: Watch = unwatched,
        snapshot_every: float = SNAPSHOT_EVERY,
    ) -> Iterator[Record]:
        alone = InProcess()
        small = is_small(max((case.source.num_parameters for case in cases), default=0))
        if self.jobs < 2 or not small or not isinstance(store, FolderStore):
            yield from alone.run(cases, metrics, store, watch, snapshot_every)
            return
        began, done = time.monotonic(), 0
        for record in alone.run(cases, metrics, store, watch, snapshot_every) if self.patience > 0 else ():
            yield record
            done += 1
            if time.monotonic() - began > self.patience:
                break
        rest = cases[done:]

        def watch_rest(index: int, title: str, slot: int = 0) -> Progress:
            return watch(done + index, title, slot)

        pack = _pack(rest, metrics, store, snapshot_every) if len(rest) > 1 else None
        if pack is None:
            yield from alone.run(rest, metrics, store, watch_rest, snapshot_every)
        else:
            yield from _share_out(rest, metrics, store, self.jobs, pack, watch_rest)


def _pack(cases: Sequence[Case], metrics: Metrics, store: FolderStore, snapshot_every: float) -> bytes | None:
    """All that workers need; in one piece, since cases share their tensors."""
    try:
        return pickle.dumps((tuple(cases), dict(metrics), store, snapshot_every))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


@dataclass
class _Worker:
    """A process, our end of the line to it, and the case it is at, if any."""

    process: BaseProcess
    line: Connection
    index: int | None = None
    progress: Progress = silent


def _share_out(
    cases: Sequence[Case], metrics: Metrics, store: FolderStore, jobs: int, pack: bytes, watch: Watch
) -> Iterator[Record]:
    pending = [index for index, case in enumerate(cases) if store.get(case.key) is None]
    done = set(range(len(cases))) - set(pending)
    workers = [_start_worker(pack) for _ in range(min(jobs, len(pending)))]
    try:
        for index, case in enumerate(cases):
            while index not in done:
                for slot, worker in enumerate(workers):
                    if worker.index is None and pending:
                        worker.index = pending.pop(0)
                        worker.progress = watch(worker.index, cases[worker.index].title, slot)
                        worker.line.send(worker.index)
                done |= _wait_for_word(workers, cases)
            record = recall(case.key, metrics, store)
            assert record is not None  # a case is done once the store holds it
            store.drop_snapshot(case.key)
            yield record
    finally:
        # Also on Ctrl-C: a closed line is what stops a worker, after it has kept how far its case has come.
        for worker in workers:
            worker.line.close()
        for worker in workers:
            worker.process.join()


def _start_worker(pack: bytes) -> _Worker:
    # A fresh interpreter: a forked one shares the locks of threads that it does not have.
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, pack), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _wait_for_word(workers: Sequence[_Worker], cases: Sequence[Case]) -> set[int]:
    """Wait for word from any worker; the cases that are done by then."""
    done = set()
    at_work = {worker.line: worker for worker in workers if worker.index is not None}
    for line in wait(list(at_work)):
        worker = at_work[line]  # type: ignore[index]
        assert worker.index is not None
        try:
            said = worker.line.recv()
        except EOFError:
            raise InvalidCase(_WORDS_OF_FAILURE.format(name=cases[worker.index].attack_name)) from None
        if isinstance(said, Tick):
            worker.progress(said)
        elif isinstance(said, BaseException):
            raise said
        else:
            done.add(worker.index)
            worker.index = None
    return done


def _work(line: Connection, pack: bytes) -> None:
    """The life of a worker: cases by their numbers until the line is closed at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; ours tells this one
    torch.set_num_threads(1)
    try:
        cases, metrics, store, snapshot_every = pickle.loads(pack)  # noqa: S301 - our own process sent it
        while True:
            store.put(run_case(cases[line.recv()], metrics, _report_to(line), store, snapshot_every))
            line.send(None)
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return
    except Exception as error:
        line.send(error)


def _report_to(line: Connection) -> Progress:
    """Tells of the first step of a case and then now and then; a line that was closed is Ctrl-C at the other end."""
    reported = -math.inf

    def tell(tick: Tick) -> None:
        nonlocal reported
        if line.poll():
            raise KeyboardInterrupt
        if time.monotonic() - reported > _TELL_EVERY:
            reported = time.monotonic()
            line.send(tick)

    return tell
