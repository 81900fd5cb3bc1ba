"""From words to the table: train under every defence, attack under every condition, keep all that finishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from leakgauge.audit.case import Case
from leakgauge.audit.executors import Executor, InProcess
from leakgauge.audit.plan import prepare
from leakgauge.audit.record import Record
from leakgauge.audit.result import summarise_records
from leakgauge.audit.resumption import SNAPSHOT_EVERY
from leakgauge.audit.run import Metrics
from leakgauge.audit.store import FolderStore
from leakgauge.checkpoints import CHECKPOINT_EVERY
from leakgauge.config import build_dataset
from leakgauge.data import Dataset
from leakgauge.errors import InvalidCase
from leakgauge.files import writable_folder, write_tensors
from leakgauge.progress import Progress, Watch, silent, unwatched
from leakgauge.threads import suitable_threads
from leakgauge.tradeoff.plan import Condition, TradeoffPlan
from leakgauge.tradeoff.result import Cell, Tradeoff, TradeoffRow
from leakgauge.training import PreparedTraining, Trained, prepare_training, run_training
from leakgauge.version import VERSION

Place = tuple[str, Condition]
"""A cell of the table: the defence and the condition."""


class Stages(Protocol):
    """Who is told how far it is: both hand out a context, so that bars can be drawn and taken away."""

    def training(self, label: str) -> AbstractContextManager[Progress]: ...

    def attacking(self, cases: Sequence[Case]) -> AbstractContextManager[Watch]: ...


class Unwatched:
    """Reports progress to nobody."""

    def training(self, label: str) -> AbstractContextManager[Progress]:
        del label
        return nullcontext(silent)

    def attacking(self, cases: Sequence[Case]) -> AbstractContextManager[Watch]:
        del cases
        return nullcontext(unwatched)


@dataclass(frozen=True)
class _Question:
    """One case, and the cell of the table that it belongs to."""

    condition: Condition
    case: Case


class _Leakage:
    """The cells under way: all cases in order, and the records of those that are answered."""

    def __init__(
        self, questions: Sequence[_Question], refused: Mapping[Place, str], metrics: Metrics, store: FolderStore
    ) -> None:
        self.questions, self.refused, self.metrics, self.store = questions, refused, metrics, store
        self._records: list[Record] = []

    def run(self, stages: Stages, snapshot_every: float, executor: Executor) -> None:
        cases = [question.case for question in self.questions]
        if not cases:
            return
        with suitable_threads(max(case.source.num_parameters for case in cases)), stages.attacking(cases) as watch:
            try:
                for record in executor.run(cases, self.metrics, self.store, watch, snapshot_every):
                    self._records.append(record)
            except KeyboardInterrupt:
                # From the store: the interruption may have come between keeping the last result and handing it over.
                for case in cases[len(self._records) :][:1]:
                    if (kept := self.store.get(case.key)) is not None:
                        self._records.append(kept)
                raise

    def cells(self) -> dict[Place, Cell]:
        """By defence and condition; a cell is whole or absent."""
        groups: dict[Place, list[Record | None]] = {}
        for question, record in zip_longest(self.questions, self._records):
            groups.setdefault((question.case.defence, question.condition), []).append(record)
        return {
            place: Cell.of(summarise_records(records, {}).rows[0])
            for place, group in groups.items()
            if len(records := [record for record in group if record is not None]) == len(group)
        }


def tradeoff(
    plan: TradeoffPlan,
    out: Path,
    stages: Stages | None = None,
    *,
    checkpoint_every: float = CHECKPOINT_EVERY,
    snapshot_every: float = SNAPSHOT_EVERY,
    executor: Executor = InProcess(),
) -> Tradeoff:
    """The whole table, kept in ``out``; interrupted, the finished part is returned, and a second call goes on.

    An interruption before anything could be kept is passed on.
    """
    stages = stages or Unwatched()
    dataset = build_dataset(plan.dataset, plan.data_root)
    # All bad input shows here, before any work.
    trainings = {defence: prepare_training(plan.training(defence), dataset) for defence in plan.defences}
    utilities: dict[str, Trained] = {}
    untrained: dict[str, str] = {}
    leakage: _Leakage | None = None
    complete = True
    try:
        state = _victim(plan, dataset, out, stages, checkpoint_every)
        leakage = _prepare(plan, state, FolderStore.create(out))
        for defence, training in trainings.items():
            try:
                utilities[defence] = _train(training, out, stages, checkpoint_every)
            except InvalidCase as error:  # not every defence goes with every model; the others do not suffer for it
                untrained[defence] = str(error)
        leakage.run(stages, snapshot_every, executor)
    except KeyboardInterrupt:
        complete = False
        if leakage is None:
            raise
    cells = leakage.cells()
    rows = tuple(
        TradeoffRow(
            defence,
            utilities.get(defence),
            {condition: cell for (name, condition), cell in cells.items() if name == defence},
            {condition: reason for (name, condition), reason in leakage.refused.items() if name == defence},
            untrained.get(defence),
        )
        for defence in plan.defences
    )
    limit = {name: float(value) for name, value in plan.limit.items()}
    return Tradeoff(rows, plan.conditions(), limit, plan.words() | {"version": VERSION}, complete)


def _train(prepared: PreparedTraining, out: Path, stages: Stages, checkpoint_every: float) -> Trained:
    with stages.training(f"training with {prepared.plan.defence}") as progress:
        return run_training(prepared, out, progress, checkpoint_every)


def _victim(plan: TradeoffPlan, dataset: Dataset, out: Path, stages: Stages, checkpoint_every: float) -> str | None:
    """A file with the weights that every defence is attacked with; None leaves the model as it comes."""
    words = plan.victim()
    if words is None:
        return None
    with stages.training("training the victim") as progress:
        trained = run_training(prepare_training(words, dataset), out, progress, checkpoint_every)
    path = writable_folder(out) / "victim.safetensors"
    write_tensors(path, trained.weights())
    return str(path)


def _prepare(plan: TradeoffPlan, state: str | None, store: FolderStore) -> _Leakage:
    questions: list[_Question] = []
    refused: dict[Place, str] = {}
    metrics: Metrics = {}
    for condition in plan.conditions():
        prepared = prepare(plan.audit(condition, state))
        metrics = prepared.metrics
        refused |= {(defence, condition): reason for defence, reason in _refusals(prepared.cases).items()}
        questions += [_Question(condition, case) for case in prepared.cases if (case.defence, condition) not in refused]
    # Finding by row, so that what an interruption leaves are whole rows; the sort keeps the order within each.
    questions.sort(key=lambda question: plan.defences.index(question.case.defence))
    return _Leakage(questions, refused, metrics, store)


def _refusals(cases: Sequence[Case]) -> dict[str, str]:
    """The defences that no client can run on these batches, and why; each is tried once."""
    refused = {}
    for defence, case in {case.defence: case for case in cases}.items():
        try:
            case.source.observe()
        except InvalidCase as error:
            refused[defence] = str(error)
    return refused
