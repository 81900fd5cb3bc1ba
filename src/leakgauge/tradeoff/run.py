"""From words to the table: train under every defence, attack under every condition, keep all that finishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from leakgauge.audit.bounded import USUAL_CROWD
from leakgauge.audit.case import Case
from leakgauge.audit.executors import Executor, InProcess
from leakgauge.audit.plan import prepare
from leakgauge.audit.record import Record
from leakgauge.audit.result import UNDEFENDED, summarise_records
from leakgauge.audit.resumption import SNAPSHOT_EVERY
from leakgauge.audit.run import Metrics
from leakgauge.audit.store import FolderStore
from leakgauge.bounds import Bound, bound_of, read_bounds
from leakgauge.checkpoints import CHECKPOINT_EVERY
from leakgauge.config import build_dataset
from leakgauge.data import Dataset
from leakgauge.errors import InvalidCase
from leakgauge.files import writable_folder, write_tensors
from leakgauge.progress import Progress, Watch, silent, unwatched
from leakgauge.protocol.local_update import FedSGD
from leakgauge.threads import suitable_threads
from leakgauge.tradeoff.batch_rule import BatchRule, ruled_batch, ruled_training
from leakgauge.tradeoff.plan import Condition, TradeoffPlan
from leakgauge.tradeoff.result import Cell, Tradeoff, TradeoffRow
from leakgauge.training import PreparedTraining, Trained, prepare_training, run_training
from leakgauge.training.train import steps_per_epoch
from leakgauge.version import VERSION

Place = tuple[str, Condition]
"""A cell of the table: the defence and the condition."""


class Stages(NamedTuple):
    """Who is told how far it is: both hand out a context, so that bars can be drawn and taken away."""

    training: Callable[[str], AbstractContextManager[Progress]] = lambda label: nullcontext(silent)
    attacking: Callable[[Sequence[Case]], AbstractContextManager[Watch]] = lambda cases: nullcontext(unwatched)


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
    stages = stages or Stages()
    dataset = build_dataset(plan.dataset, plan.data_root)
    # All bad input shows here, before any work.
    rule = BatchRule(ruled_batch(plan, dataset), None) if plan.batch_rule else None
    if rule is not None and rule.batch_size not in plan.batch_sizes:
        plan = replace(plan, batch_sizes=(*plan.batch_sizes, rule.batch_size))
    trainings = {defence: prepare_training(plan.training(defence), dataset) for defence in plan.defences}
    store: FolderStore | None = None
    asked: list[tuple[Condition, Case]] = []
    refused: dict[Place, str] = {}
    bounds: dict[Place, Bound] = {}
    utilities: dict[str, Trained] = {}
    untrained: dict[str, str] = {}
    complete = True
    try:
        state = _victim(plan, dataset, out, stages, checkpoint_every)
        asked, refused, bounds, metrics = _prepare(plan, state)
        store = FolderStore.create(out)
        for defence, training in trainings.items():
            try:
                with stages.training(f"training with {defence}") as progress:
                    utilities[defence] = run_training(training, out, progress, checkpoint_every)
            except InvalidCase as error:  # not every defence goes with every model; the others do not suffer for it
                untrained[defence] = str(error)
        if rule is not None:
            with stages.training(f"training in batches of {rule.batch_size}") as progress:
                in_batches = ruled_training(plan, dataset, rule.batch_size)
                rule = replace(rule, utility=run_training(in_batches, out, progress, checkpoint_every))
        if cases := [case for _, case in asked]:
            with suitable_threads(max(case.source.num_parameters for case in cases)), stages.attacking(cases) as watch:
                for _ in executor.run(cases, metrics, store, watch, snapshot_every):
                    pass
    except KeyboardInterrupt:
        complete = False
        if store is None:
            raise
    cells = _cells(asked, store)
    rows = tuple(
        TradeoffRow(
            defence,
            utilities.get(defence),
            {condition: cell for (name, condition), cell in cells.items() if name == defence},
            {condition: reason for (name, condition), reason in refused.items() if name == defence},
            untrained.get(defence),
            {condition: bound for (name, condition), bound in bounds.items() if name == defence},
            _over_training(trainings[defence], utilities[defence], plan) if defence in utilities else None,
        )
        for defence in plan.defences
    )
    limit = {name: float(value) for name, value in plan.limit.items()}
    return Tradeoff(rows, plan.conditions(), limit, plan.words() | {"version": VERSION}, complete, rule)


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


class _Prepared(NamedTuple):
    """All cases row by row, so that what an interruption leaves are whole rows; which cells no client can run; and the
    most that any attacker could find in each."""

    asked: list[tuple[Condition, Case]]
    refused: dict[Place, str]
    bounds: dict[Place, Bound]
    metrics: Metrics


def _prepare(plan: TradeoffPlan, state: str | None) -> _Prepared:
    asked: list[tuple[Condition, Case]] = []
    refused: dict[Place, str] = {}
    bounds: dict[Place, Bound] = {}
    metrics: Metrics = {}
    for condition in plan.conditions():
        prepared = prepare(plan.audit(condition, state))
        metrics = prepared.metrics
        refused |= {(defence, condition): reason for defence, reason in _refusals(prepared.cases).items()}
        bounds |= {(name, condition): bound for name, bound in read_bounds(prepared.description).items()}
        asked += [(condition, case) for case in prepared.cases if (case.defence, condition) not in refused]
    rows = [UNDEFENDED, *(one for one in plan.defences if one != UNDEFENDED)]  # its nulls are the control of all others
    asked.sort(key=lambda one: rows.index(one[1].defence))  # which keeps the order within each row
    return _Prepared(asked, refused, bounds, metrics)


def _over_training(prepared: PreparedTraining, trained: Trained, plan: TradeoffPlan) -> Bound:
    """Of the rounds that one example takes part in: one in every epoch, in an order that may be known."""
    training = prepared.training
    epoch = steps_per_epoch(len(training.data), training.training.batch_size)
    client = prepared.defence(FedSGD())
    return bound_of(client, crowd=plan.distractors or USUAL_CROWD, rounds=max(1, -(-trained.steps // epoch)))


def _cells(asked: Sequence[tuple[Condition, Case]], store: FolderStore) -> dict[Place, Cell]:
    """By defence and condition; a cell is whole or absent."""
    groups: dict[Place, list[Case]] = {}
    for condition, case in asked:
        groups.setdefault((case.defence, condition), []).append(case)
    found = {
        place: [record for case in cases if (record := store.get(case.key)) is not None]
        for place, cases in groups.items()
    }
    whole = {place: records for place, records in found.items() if len(records) == len(groups[place])}
    # All defences of a condition together, as the undefended client is the control of each.
    together: dict[Condition, list[Record]] = {}
    for (_, condition), records in whole.items():
        together.setdefault(condition, []).extend(records)
    results = {condition: summarise_records(records, {}) for condition, records in together.items()}
    rows = {condition: {row.defence for row in result.rows} for condition, result in results.items()}
    return {
        (defence, condition): Cell.of(results[condition][defence])
        for defence, condition in whole
        if defence in rows[condition]
    }


def _refusals(cases: Sequence[Case]) -> dict[str, str]:
    """The defences that no client can run on these batches, and why; each is tried once."""
    refused = {}
    for defence, case in {case.defence: case for case in cases}.items():
        try:
            case.source.observe()
        except InvalidCase as error:
            refused[defence] = str(error)
    return refused
