"""Cases on the cores of a Ray cluster [Moritz et al., 2018]: many machines, one driver that writes."""

from __future__ import annotations

import logging
import math
import os
import pickle
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch

from leakgauge.audit.case import Case
from leakgauge.audit.executors.base import Executor, Pack, shifted
from leakgauge.audit.executors.memory import MemoryLimit, peak
from leakgauge.audit.executors.sharing import Crew, Done, Lost, SharedWork, Started, Task, Word, Worker
from leakgauge.audit.record import Record
from leakgauge.audit.run import Metrics, run_safely
from leakgauge.audit.store import Store
from leakgauge.errors import InvalidCase
from leakgauge.progress import Tick, Watch
from leakgauge.threads import suitable_threads

if TYPE_CHECKING:
    import ray

_HEAR_EVERY = 0.5
"""Seconds after which workers are asked how far they are."""
_HELD = 2
_KNOCK = 5.0
"""Seconds that a cluster has to answer the door."""


@dataclass(frozen=True)
class RayCluster(Executor):
    """One actor for each core, or for as many cores as a large model has threads here, which opens a pack once.

    ``address`` is "auto" for the cluster that this machine belongs to, that of another one, or "local" for one that
    starts and ends with the run. ``jobs`` limits the actors. Actors and nodes that die are replaced and their cases put
    back; actors keep no snapshots, as they may be on another machine.
    """

    address: str = "auto"
    jobs: int | None = None

    def work(self, packs: Iterable[Pack], store: Store, watch: Watch, snapshot_every: float) -> Iterator[Record]:
        del snapshot_every
        cluster = _connect(self.address)
        done = 0
        for threads, group in groupby(packs, key=_threads):
            total = max(1, int(cluster.cluster_resources().get("CPU", 1)) // threads)
            jobs = total if self.jobs is None else min(total, self.jobs)
            share = SharedWork(RayCrew(cluster, threads), jobs, store, shifted(watch, done), MemoryLimit(math.inf))
            for record in share.run((pack, _seal(cluster, pack)) for pack in group):
                yield record
                done += 1


def _threads(pack: Pack) -> int:
    """As many as this process would take: they decide on the digits."""
    with suitable_threads(pack.num_parameters):
        return torch.get_num_threads()


def _connect(address: str) -> Any:
    # Ray would report its use to its makers, and write the workers' warnings between our lines.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Of a cluster that starts here: by default its workers stand back behind everything else on the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray
    except ImportError as error:
        raise InvalidCase("Ray is not installed; run pip install 'leakgauge[ray]', or leave out --ray.") from error
    if ray.is_initialized():  # by an earlier run of this process, at whose end Ray disconnects by itself
        return ray
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=None)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InvalidCase(
            f"There is no Ray cluster at {address!r} ({reason}); start one with `ray start --head`, or use --ray local."
        ) from error
    return ray


def _knock(address: str) -> None:
    """Whether anybody listens at host:port, before Ray tries for twenty seconds and warns once in each."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "//" not in host:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK):
            pass


def _seal(cluster: Any, pack: Pack) -> bytes:
    if (sealed := pack.seal()) is not None:
        return sealed
    try:
        dumped: bytes = cluster.cloudpickle.dumps(pack.content)  # classes of a notebook travel by value
    except Exception as error:
        reason = type(error).__name__ + f": {error}".partition("\n")[0].rstrip(".")
        raise InvalidCase(f"The model cannot be sent to other processes ({reason}); run without --ray.") from error
    return dumped


class CaseActor:
    """What runs on a core of the cluster."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._opened: dict[int, tuple[Sequence[Case], Metrics]] = {}
        self._tick: Tick | None = None

    def started(self) -> Started:
        return Started()

    def run(self, number: int, held: Sequence[ray.ObjectRef[bytes]], index: int) -> Done:
        import ray

        torch.set_num_threads(self._threads)  # of this thread
        if number not in self._opened:
            content = pickle.loads(ray.get(held[0]))  # noqa: S301 - our own driver sealed it
            self._opened = dict([*self._opened.items(), (number, content)][-_HELD:])
        cases, metrics = self._opened[number]
        self._tick = None
        return Done(run_safely(cases[index], metrics, self._note), peak())

    def tick(self) -> Tick | None:
        return self._tick

    def _note(self, tick: Tick) -> None:
        self._tick = tick


@dataclass(eq=False)
class _Actor(Worker):
    """A worker by its handle, what it was asked for, and the question how far it is."""

    handle: Any = field(kw_only=True)
    answer: Any = field(kw_only=True)
    question: Any = None


class RayCrew(Crew):
    """Actors of a cluster that this process is connected to."""

    def __init__(self, cluster: Any, threads: int) -> None:
        self._ray, self._threads = cluster, threads
        self._held: dict[int, Any] = {}

    def hire(self, slot: int, need: float) -> Worker:
        # One group to work and one to be asked meanwhile how far the work is.
        kind = self._ray.remote(concurrency_groups={"work": 1, "ask": 1})(CaseActor)
        handle = kind.options(num_cpus=self._threads, memory=int(need), max_restarts=0).remote(self._threads)
        return _Actor(slot, handle=handle, answer=handle.started.remote())

    def begin(self, worker: Worker, task: Task) -> None:
        assert isinstance(worker, _Actor)
        number = task.sealed.number
        if number not in self._held:
            reference = self._ray.put(task.sealed.content)
            self._held = dict([*self._held.items(), (number, reference)][-_HELD:])
        # In a list, so that the actor fetches it where it has not opened it yet.
        call = worker.handle.run.options(concurrency_group="work")
        worker.answer = call.remote(number, [self._held[number]], task.index)

    def listen(self, workers: Sequence[Worker]) -> list[tuple[Worker, Word]]:
        actors = [worker for worker in workers if isinstance(worker, _Actor)]
        waiting = {actor.answer: actor for actor in actors if actor.answer is not None}
        ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=_HEAR_EVERY)
        heard: list[tuple[Worker, Word]] = []
        for answer in ready:
            actor = waiting[answer]
            actor.answer = actor.question = None
            heard.append((actor, self._word(answer)))
        return heard or self._ask(actors)

    def _word(self, answer: Any) -> Word:
        try:
            word: Started | Done = self._ray.get(answer)
            return word
        except self._ray.exceptions.RayError:  # the actor, its node or what it returned is lost
            return Lost()

    def _ask(self, actors: Sequence[_Actor]) -> list[tuple[Worker, Word]]:
        heard: list[tuple[Worker, Word]] = []
        for actor in actors:
            if actor.task is None:
                continue
            if actor.question is None:
                actor.question = actor.handle.tick.options(concurrency_group="ask").remote()
            elif self._ray.wait([actor.question], timeout=0)[0]:
                question, actor.question = actor.question, None
                try:
                    tick = self._ray.get(question)
                except self._ray.exceptions.RayError:
                    continue  # its answer will say so
                if tick is not None:
                    heard.append((actor, tick))
        return heard

    def dismiss(self, workers: Sequence[Worker]) -> None:
        for worker in workers:
            if isinstance(worker, _Actor):
                self._ray.kill(worker.handle)
