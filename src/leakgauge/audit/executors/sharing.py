"""Cases shared out to workers, wherever these are: what a worker that dies was at is put back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from leakgauge.audit.case import Case
from leakgauge.audit.executors.base import Pack
from leakgauge.audit.executors.memory import MemoryLimit
from leakgauge.audit.record import Record
from leakgauge.audit.run import Metrics, failed, recall, recall_answer
from leakgauge.audit.store import Store
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, Watch, silent

TRIES = 4
"""How often a case is begun at most; the last time without another beside it."""

_GIVEN_UP = (
    "The process that ran {name} ended {tries} times without a result, maybe for want of memory; try again with "
    "--jobs 1 on a machine that has more."
)
_OTHER_CODE = (
    "The process that ran this case has another version of LeakGauge, or of your own code, than the one that asked for "
    "it; install the same on every machine."
)
_NO_START = "The processes that are to run attacks end before they have begun; try again with --jobs 1."


@dataclass(frozen=True)
class Sealed:
    """A pack as it travels, under a number by which a worker knows whether it has opened it already."""

    number: int
    content: bytes


@dataclass
class Task:
    """A case that is to be run: where it stands among all, in its pack, and how often its worker has died."""

    place: int
    case: Case
    sealed: Sealed
    index: int
    deaths: int = 0


@dataclass(frozen=True)
class Started:
    """A worker can take its first case."""


@dataclass(frozen=True)
class Done:
    """A case has its record; ``peak`` are the most bytes that the worker has held."""

    record: Record
    peak: int


@dataclass(frozen=True)
class Lost:
    """A worker is no more."""


Word = Started | Tick | Done | Lost
"""What is heard of a worker."""


@dataclass(eq=False)
class Worker(ABC):
    """Somebody who runs one case at a time."""

    slot: int
    started: bool = False
    task: Task | None = None
    progress: Progress = field(default=silent, repr=False)


class Crew(ABC):
    """Workers of one kind; a context, at whose end none of them is left."""

    @abstractmethod
    def hire(self, slot: int, need: float) -> Worker:
        """A new worker, which says when it has started; it is going to ``need`` so many bytes."""

    @abstractmethod
    def begin(self, worker: Worker, task: Task) -> None: ...

    @abstractmethod
    def listen(self, workers: Sequence[Worker]) -> list[tuple[Worker, Word]]:
        """Wait until there is word from any of them."""

    @abstractmethod
    def dismiss(self, workers: Sequence[Worker]) -> None:
        """End all of them; those at a case keep how far it has come, as far as they can."""


class SharedWork:
    """One run: a queue that is filled pack by pack, and workers as many as there is work and memory for."""

    def __init__(self, crew: Crew, jobs: int, store: Store, watch: Watch, memory: MemoryLimit) -> None:
        self.crew, self.jobs, self.store, self.watch, self.memory = crew, jobs, store, watch, memory
        self._queue: deque[Task] = deque()
        self._workers: list[Worker] = []
        self._asked: deque[tuple[int, str, Metrics]] = deque()  # keys, not cases: what waits for its turn is small
        self._done: set[int] = set()
        self._places = 0
        self._false_starts = 0

    def run(self, packs: Iterable[tuple[Pack, bytes]]) -> Iterator[Record]:
        """The records in order; the next pack is asked for when the queue is shorter than the crew."""
        coming = iter(enumerate(packs))
        try:
            while self._fill(coming) or self._asked:
                while self._asked and self._asked[0][0] in self._done:
                    yield self._hand_over()
                if self._asked:
                    self._employ()
                    for worker, word in self.crew.listen(self._workers):
                        self._hear(worker, word)
        finally:
            self.crew.dismiss(self._workers)

    def _fill(self, coming: Iterator[tuple[int, tuple[Pack, bytes]]]) -> bool:
        while len(self._queue) < self.jobs:
            following = next(coming, None)
            if following is None:
                return bool(self._queue)
            number, (pack, content) = following
            sealed = Sealed(number, content)
            for index, case in enumerate(pack.cases):
                self._asked.append((self._places, case.key, pack.metrics))
                if recall_answer(case.key, pack.metrics, self.store) is None:
                    self._queue.append(Task(self._places, case, sealed, index))
                else:
                    self._done.add(self._places)
                self._places += 1
        return True

    def _hand_over(self) -> Record:
        place, key, metrics = self._asked.popleft()
        self._done.remove(place)
        # From the store, which holds it by now: records that wait for their turn would fill the memory.
        record = recall(key, metrics, self.store)
        assert record is not None
        self.store.drop_snapshot(key)
        return record

    def _employ(self) -> None:
        """Hire as many as there is work for, and give those who are free a case that fits beside the others."""
        busy = [worker for worker in self._workers if worker.task is not None]
        wanted = min(self.jobs, len(busy) + len(self._queue))
        free_slots = [slot for slot in range(self.jobs) if slot not in {worker.slot for worker in self._workers}]
        for slot in free_slots[: max(0, wanted - len(self._workers))]:
            self._workers.append(self.crew.hire(slot, max(map(self.memory.need, (one.case for one in self._queue)))))
        for worker in self._workers:
            if worker.started and worker.task is None and (task := self._next()) is not None:
                worker.task = task
                worker.progress = self.watch(task.place, task.case.title, worker.slot)
                self.crew.begin(worker, task)

    def _next(self) -> Task | None:
        """The first of the queue that fits beside what is under way; one that has cost workers their lives, alone."""
        beside = [worker.task for worker in self._workers if worker.task is not None]
        if any(task.deaths >= TRIES - 1 for task in beside):
            return None
        for task in self._queue:
            alone = task.deaths >= TRIES - 1
            if not (alone and beside) and self.memory.fits(task.case, *(one.case for one in beside)):
                self._queue.remove(task)
                return task
        return None

    def _hear(self, worker: Worker, word: Word) -> None:
        task = worker.task
        if isinstance(word, Started):
            worker.started, self._false_starts = True, 0
        elif isinstance(word, Tick):
            worker.progress(word)
        elif isinstance(word, Done):
            assert task is not None
            self.memory.note(task.case, word.peak)
            # The key covers the code: what other code answered is no answer to this case.
            same = word.record.key == task.case.key
            self._keep(task, word.record if same else failed(task.case, _OTHER_CODE))
            worker.task = None
        else:
            self._workers.remove(worker)
            self._put_back(worker, task)

    def _put_back(self, worker: Worker, task: Task | None) -> None:
        if not worker.started:
            self._false_starts += 1
            if self._false_starts >= TRIES * self.jobs:
                raise InvalidCase(_NO_START)
        if task is None:
            return
        task.deaths += 1
        if task.deaths < TRIES:
            self._queue.appendleft(task)
        else:
            self._keep(task, failed(task.case, _GIVEN_UP.format(name=task.case.attack_name, tries=TRIES)))

    def _keep(self, task: Task, record: Record) -> None:
        self.store.put(record)
        self._done.add(task.place)
