"""Cases side by side, each in a process of its own: attacks on small models leave all cores but one idle."""

from __future__ import annotations

import math
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from leakgauge.audit.case import Case
from leakgauge.audit.executors.base import Executor, Pack, shifted
from leakgauge.audit.executors.in_process import InProcess
from leakgauge.audit.executors.memory import MemoryLimit, peak
from leakgauge.audit.executors.sharing import Crew, Done, Lost, SharedWork, Started, Task, Word, Worker
from leakgauge.audit.record import Record
from leakgauge.audit.run import Metrics, run_safely
from leakgauge.audit.store import Store
from leakgauge.progress import Progress, Tick, Watch
from leakgauge.threads import is_small

PATIENCE = 10.0
"""Seconds of work from which the start of further processes pays: each imports torch."""

_TELL_EVERY = 0.2
_GRACE = 5.0
"""Seconds that a worker has to keep how far it has come, when it is to end or its driver is no more."""
_HELD = 2
"""Packs that a worker keeps open: the one it is at and the one before, of which cases may be put back."""


def cores() -> int:
    """How many processors this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


@dataclass(frozen=True)
class Processes(Executor):
    """``jobs`` cases at once, each in its own process, after ``patience`` seconds of one after another.

    One after another to the end where side by side is of no use or not possible: a large model keeps all cores busy by
    itself, and not every model or attack can be sent to another process.
    """

    jobs: int
    patience: float = PATIENCE

    def work(self, packs: Iterable[Pack], store: Store, watch: Watch, snapshot_every: float) -> Iterator[Record]:
        alone, coming, done = InProcess(), iter(packs), 0
        if self.jobs < 2:
            yield from alone.work(coming, store, watch, snapshot_every)
            return
        began = time.monotonic()
        while time.monotonic() - began < self.patience and (pack := next(coming, None)) is not None:
            taken = 0
            for record in alone.work([pack], store, shifted(watch, done), snapshot_every):
                yield record
                done, taken = done + 1, taken + 1
                if time.monotonic() - began >= self.patience:
                    break
            if rest := pack.cases[taken:]:
                coming = chain([Pack(rest, pack.metrics)], coming)
        sealed = ((pack, _seal(pack) if is_small(pack.num_parameters) else None) for pack in coming)
        for sent, group in groupby(sealed, key=lambda one: one[1] is not None):
            told = shifted(watch, done)
            if sent:
                crew = ProcessCrew(store, snapshot_every)
                found = SharedWork(crew, self.jobs, store, told, MemoryLimit()).run(_sent(group))
            else:
                found = alone.work((pack for pack, _ in group), store, told, snapshot_every)
            for record in found:
                yield record
                done += 1


def _sent(group: Iterable[tuple[Pack, bytes | None]]) -> Iterator[tuple[Pack, bytes]]:
    return ((pack, content) for pack, content in group if content is not None)


def _seal(pack: Pack) -> bytes | None:
    """All that workers need; None where it cannot be sent, or is a single case, for which no process is started."""
    return pack.seal() if len(pack.cases) > 1 else None


@dataclass(eq=False)
class _Process(Worker):
    """A worker with our ends of the lines to it: one to talk, and one that is never used, and closes when we die."""

    process: BaseProcess = field(kw_only=True)
    line: Connection = field(kw_only=True)
    lifeline: Connection = field(kw_only=True)
    opened: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class ProcessCrew(Crew):
    """Processes of this machine; they keep snapshots in the store and send records."""

    store: Store
    snapshot_every: float

    def hire(self, slot: int, need: float) -> Worker:
        del need  # which the limit of memory has seen to
        # A fresh interpreter: a forked one shares the locks of threads that it does not have.
        context = get_context("spawn")
        (ours, theirs), (lifeline, end) = context.Pipe(), context.Pipe()
        process = context.Process(
            target=_work, args=(theirs, end, self.store.of_workers(), self.snapshot_every), daemon=True
        )
        process.start()
        theirs.close()
        end.close()
        return _Process(slot, process=process, line=ours, lifeline=lifeline)

    def begin(self, worker: Worker, task: Task) -> None:
        assert isinstance(worker, _Process)
        content = None if task.sealed.number in worker.opened else task.sealed.content
        if content is not None:
            worker.opened = [*worker.opened, task.sealed.number][-_HELD:]
        with suppress(OSError):  # it has died, which is heard next
            worker.line.send((task.sealed.number, content, task.index))

    def listen(self, workers: Sequence[Worker]) -> list[tuple[Worker, Word]]:
        lines = {worker.line: worker for worker in workers if isinstance(worker, _Process)}
        heard: list[tuple[Worker, Word]] = []
        for line in wait(list(lines)):
            worker = lines[line]  # type: ignore[index]
            try:
                heard.append((worker, worker.line.recv()))
            except (EOFError, OSError):
                self.dismiss([worker])
                heard.append((worker, Lost()))
        return heard

    def dismiss(self, workers: Sequence[Worker]) -> None:
        """A closed line is what stops a worker, after it has kept how far its case has come."""
        own = [worker for worker in workers if isinstance(worker, _Process)]
        for worker in own:
            worker.line.close()
        deadline = time.monotonic() + _GRACE
        for worker in own:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.lifeline.close()


def _work(line: Connection, lifeline: Connection, store: Store, snapshot_every: float) -> None:
    """The life of a worker: cases by their pack and number until the line is closed at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; ours tells this one
    threading.Thread(target=_die_with, args=(lifeline,), daemon=True).start()
    torch.set_num_threads(1)
    sys.stdout = sys.stderr  # where the driver writes its answer, a model prints nothing
    opened: dict[int, tuple[Sequence[Case], Metrics]] = {}
    try:
        line.send(Started())
        while True:
            number, content, index = line.recv()
            if content is not None:
                opened = dict([*opened.items(), (number, pickle.loads(content))][-_HELD:])  # noqa: S301 - our own pack
                content = None
            cases, metrics = opened[number]
            line.send(Done(run_safely(cases[index], metrics, _report_to(line), store, snapshot_every), peak()))
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return


def _die_with(lifeline: Connection) -> None:
    """Nobody is left behind: where the driver was killed, its end of the line closes, whatever this process is at."""
    try:
        lifeline.recv()
    except (EOFError, OSError):
        time.sleep(_GRACE)
        os._exit(1)


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
