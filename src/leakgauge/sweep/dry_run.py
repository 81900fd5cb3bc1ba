"""A grid that is tried and not run: which cases are impossible and why, and how long the others would take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from leakgauge.attacks.base import SteppedAttack
from leakgauge.attacks.budget import Budget, budget_of, with_budget
from leakgauge.audit.case import Case
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.run import run_safely
from leakgauge.config import build_dataset, build_loss
from leakgauge.errors import LeakGaugeError
from leakgauge.progress import Progress, Tick, silent
from leakgauge.randomness import seeded
from leakgauge.sweep.grid import SweepCell, SweepGrid
from leakgauge.sweep.run import steps_before
from leakgauge.threads import suitable_threads
from leakgauge.training import victim_model
from leakgauge.types import Outcome

_STEPS = 3
"""Steps that are timed; the first makes ready and does not count."""
_IMPOSSIBLE = (Outcome.NOT_APPLICABLE, Outcome.MISSING_KNOWLEDGE, Outcome.FAILED)


@dataclass(frozen=True)
class Impossible:
    """What will not be measured, and why: a whole cell, or an attack on a defence in it."""

    cell: str
    defence: str | None
    attack: str | None
    cases: int
    reason: str


@dataclass(frozen=True)
class Forecasts:
    """``seconds`` of all possible cases, and ``training_seconds`` of all trainings, one after another on this machine.

    Models are trained by the process that was started, however many others attack.
    """

    cells: int
    cases: int
    seconds: float
    impossible: tuple[Impossible, ...]
    trainings: int
    training_seconds: float

    def wall(self, jobs: int) -> float:
        return self.training_seconds + self.seconds / jobs


def dry_run(grid: SweepGrid, progress: Progress = silent) -> Forecasts:
    """Try each attack on each defence of each cell for a few steps, on the model as it comes, and each training.

    Cells that differ by their seed or their training alone are tried once.
    """
    cells = list(grid.cells())
    tried: dict[str, list[_Trial] | str] = {}
    cases, seconds = 0, 0.0
    impossible: list[Impossible] = []
    for number, cell in enumerate(cells, 1):
        untrained = replace(cell.plan(), train_steps=0, seed=0)
        key = repr(untrained)
        if key not in tried:
            tried[key] = _try(lambda plan=untrained: prepare(plan).cases)  # type: ignore[misc]
        found = tried[key]
        if isinstance(found, str):
            impossible.append(Impossible(cell.name, None, None, 0, found))
        else:
            cases += sum(one.cases for one in found)
            seconds += sum(one.cases * one.seconds for one in found if one.reason is None)
            impossible += [
                Impossible(cell.name, one.defence, one.attack, one.cases, one.reason)
                for one in found
                if one.reason is not None
            ]
        progress(Tick(number, number / len(cells)))
    trainings = _trainings(cells)
    return Forecasts(len(cells), cases, seconds, tuple(impossible), len(trainings), sum(trainings))


@dataclass(frozen=True)
class _Trial:
    defence: str
    attack: str
    cases: int
    seconds: float
    reason: str | None


def _try(prepared: Callable[[], Sequence[Case]]) -> list[_Trial] | str:
    try:
        cases = prepared()
        groups: dict[tuple[str, str], list[Case]] = {}
        for case in cases:
            groups.setdefault((case.defence, case.attack_name), []).append(case)
        return [_attempt(*name, group) for name, group in groups.items()]
    except LeakGaugeError as refusal:
        return str(refusal)


def _attempt(defence: str, attack: str, group: Sequence[Case]) -> _Trial:
    case = min(group, key=lambda one: one.null)
    with suitable_threads(case.source.num_parameters):
        try:
            seconds, reason = _timed(case)
        except LeakGaugeError as refusal:
            seconds, reason = 0.0, str(refusal)
    return _Trial(defence, attack, len(group), seconds, reason)


def _timed(case: Case) -> tuple[float, str | None]:
    """Seconds of the case, from a few of its steps, and why it is impossible, if it is."""
    budget = budget_of(case.attack)
    started = time.perf_counter()
    if not isinstance(case.attack, SteppedAttack):
        short = replace(case, attack=with_budget(case.attack, Budget(steps=_STEPS)))
        record = run_safely(short, {})
        took = time.perf_counter() - started
        reason = record.reason if record.outcome in _IMPOSSIBLE else None
        return _whole(budget, took / _STEPS, took), reason
    search = case.attack.search([case.source.observe()], generator=seeded(case.seed, "attack", case.round))
    ready = time.perf_counter()
    steps = 0
    while search.outcome is None and steps < _STEPS:
        search.step()
        steps += 1
        if steps == 1:
            ready, started = time.perf_counter(), started + (time.perf_counter() - ready)
    if search.outcome in _IMPOSSIBLE:
        return 0.0, str(search.results()[0].facts.get("reason", search.outcome.value))
    ended = time.perf_counter()
    return _whole(budget, (ended - ready) / max(1, steps - 1), ended - started), None


def _whole(budget: Budget | None, step: float, otherwise: float) -> float:
    if budget is None:
        return otherwise
    limits = [] if budget.steps is None else [budget.steps * step]
    return min([*limits, *([] if budget.seconds is None else [max(budget.seconds, budget.least * step)])])


def _trainings(cells: Sequence[SweepCell]) -> list[float]:
    """The seconds of each training that comes first; a model is timed once, whatever its seeds and lengths."""
    plans: dict[tuple[object, ...], AuditPlan] = {}
    for cell in cells:
        plan = cell.plan()
        if steps := steps_before(plan):
            plans.setdefault((*_trained_model(plan), steps, plan.seed), plan)
    step: dict[tuple[object, ...], float] = {}
    for plan in plans.values():
        if (model := _trained_model(plan)) not in step:
            step[model] = _step_seconds(plan)
    taken = [steps_before(plan) * step[_trained_model(plan)] for plan in plans.values()]
    return [seconds for seconds in taken if seconds]


def _trained_model(plan: AuditPlan) -> tuple[object, ...]:
    return (plan.dataset, plan.data_root, plan.model, plan.loss, plan.normalise, plan.state)


def _step_seconds(plan: AuditPlan) -> float:
    """Of a training step; 0 where there is none, because the cell is refused or has no training data."""
    ticks: list[float] = []
    with suppress(LeakGaugeError):
        dataset = build_dataset(plan.dataset, plan.data_root)
        victim_model(
            plan.model,
            dataset,
            seed=plan.seed,
            state=plan.state,
            steps=_STEPS if len(dataset.train) else 0,
            loss=build_loss(plan.loss),
            normalise=plan.normalise,
            progress=lambda tick: ticks.append(time.perf_counter()),
        )
    return (ticks[-1] - ticks[0]) / (len(ticks) - 1) if len(ticks) > 1 else 0.0
