"""``leakgauge.explain``: which reading of a recorded round explains its update.

With the truth at hand a reading is tried by the update that its client computes of it. Without, or where no reading
explains the update by the truth, a short attack looks for inputs that do, longer for the readings that did best, and
the same attack on a simulated client of that reading says what it would have reached if the reading were right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from time import process_time
from typing import Any

from torch import nn

from leakgauge.audit.reading_trials import ByAttack, ByTruth, Prober, ReadingTrial
from leakgauge.audit.readings import READINGS, RoundReading, rescale
from leakgauge.audit.recorded import OpenRound, RecordedPlan, open_plan
from leakgauge.audit.result import AuditResult
from leakgauge.audit.verdict import EXPLAINED, is_explained
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.recording import RecordedRound
from leakgauge.types import Batch

_RUNGS = ((40, 8), (120, 3), (400, 1))
"""Steps of the attack, and how many of the readings that did best go on to longer ones."""

_HARDLY = 1e-4
"""A residual that says nothing for one reading over another."""

_WIDER, _DEEPER = 24, 4
"""How many of the readings that did best are combined with others when none explains the update alone: of those
tried on the truth, which costs little, and of those attacked."""


@dataclass(frozen=True)
class RoundExplanation:
    """Every reading that was tried, the declared one first in ``declared``, the others the best first.

    ``truth`` is the declared one tried on the private inputs, None = these are not known. Where a reading explains the
    update by them, all were tried on them; where none does, by attack, so that what explains it are other inputs.
    """

    declared: ReadingTrial
    others: tuple[ReadingTrial, ...]
    truth: ReadingTrial | None = None

    @property
    def other_inputs(self) -> bool:
        """Whether what explains the update are other inputs than those said to be the truth."""
        return self.truth is not None and self.best is not None and self.best.steps > 0

    @property
    def best(self) -> ReadingTrial | None:
        """The reading that explains the update: the declared one if it does, else the simplest; None = none does."""
        if self.declared.explains:
            return self.declared
        return next((trial for trial in self.others if trial.explains), None)

    @property
    def rivals(self) -> tuple[ReadingTrial, ...]:
        """Other readings that explain it, are as simple and leave hardly more over."""
        found = self.best
        if found is None or found is self.declared:
            return ()
        simple, left = len(found.reading.kinds), max(2 * found.fit.residual, _HARDLY)
        return tuple(
            trial
            for trial in self.others
            if trial is not found
            and trial.explains
            and len(trial.reading.kinds) == simple
            and trial.fit.residual <= left
        )

    @property
    def words_to_type(self) -> tuple[str, ...]:
        """The options of the reading that explains the update."""
        return () if self.best is None else tuple(word for pair in self.best.reading.options for word in pair)

    def to_json(self) -> list[dict[str, Any]]:
        """One row for each reading."""
        rows = []
        for trial in (self.declared, *self.others):
            options = [word for pair in trial.reading.options for word in pair]
            numbers = {
                "residual": trial.fit.residual,
                "misfit": trial.fit.misfit,
                "scale": trial.fit.scale,
                "control": math.nan if trial.control is None else trial.control.residual,
            }
            plain = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
            said = {"reading": trial.reading.words, "explains": trial.explains, "options": options}
            rows.append(said | plain | {"steps": trial.steps})
        return rows


@dataclass(frozen=True)
class RoundCheck:
    """Whether the declared client explains a recorded update; None = cannot be said.

    ``residual`` is of what came back, ``truth`` of the truth, ``control`` the largest of simulated clients, attacked
    alike; NaN = not computed, or not needed.
    """

    explained: bool | None
    residual: float
    truth: float
    control: float

    def to_json(self) -> dict[str, Any]:
        numbers = {"residual": self.residual, "truth_residual": self.truth, "control_residual": self.control}
        plain = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        return {"explained": self.explained} | plain


def check_round(plan: RecordedPlan, result: AuditResult) -> RoundCheck:
    """By the nulls of a scored round; of one without, whose residual is not plainly small, by one control."""
    records = [record for row in result.rows for record in row.records]
    record = min(records, key=lambda one: one.residual if math.isfinite(one.residual) else math.inf)
    nulls = [one for row in result.rows for one in row.nulls]
    worst = max((one.residual for one in nulls if math.isfinite(one.residual)), default=math.nan)
    if nulls:
        known = math.isfinite(record.residual) or math.isfinite(record.truth_residual)
        told = is_explained(record, nulls) if known else None
        return RoundCheck(told, record.residual, record.truth_residual, worst)
    if math.isnan(record.residual) or record.residual <= EXPLAINED or record.settled is False:
        # An attack that was cut short leaves more over than the client does.
        told = True if record.residual <= EXPLAINED else None
        return RoundCheck(told, record.residual, math.nan, math.nan)
    opened, model, _ = open_plan(plan)
    attack = next(iter(plan.named_attacks((record.attack,)).values()))
    control = ByAttack(model, plan.seed).control(opened, attack)
    told = None if math.isnan(control) else record.residual <= max(EXPLAINED, 2 * control)
    return RoundCheck(told, record.residual, math.nan, control)


def explain(
    recorded: RecordedRound,
    model: nn.Module,
    truth: Batch | None = None,
    *,
    seconds: float = 120.0,
    seed: int = 0,
    progress: Progress = silent,
) -> RoundExplanation:
    """Which reading of a recorded round explains its update: as declared, or with one or two things otherwise.

    With the private inputs as ``truth`` readings are tried on these, else by short attacks, all of which together take
    about so many CPU ``seconds`` at the most.
    """
    declared = RoundReading(recorded)
    OpenRound.of(recorded, model)  # refuses a round that does not fit its model
    by_attack = ByAttack(model, seed)
    if truth is None:
        return _search_by_attack(by_attack, declared, Clock(seconds, progress))
    found = _search_by_truth(ByTruth(model, truth), declared, Clock(seconds / 2, progress))
    if found.best is not None:
        return found
    # Other inputs than the truth may: of another client, altered before training, or more of them.
    return replace(_search_by_attack(by_attack, declared, Clock(seconds / 2, progress)), truth=found.declared)


class Clock:
    """How much of the time is spent, told as it goes by."""

    def __init__(self, seconds: float, progress: Progress) -> None:
        self.seconds, self.progress, self.began, self.count = seconds, progress, process_time(), 0

    @property
    def spent(self) -> float:
        return min(1.0, (process_time() - self.began) / self.seconds)

    def tick(self, misfit: float, share: float) -> None:
        self.count += 1
        self.progress(Tick(self.count, max(share, self.spent), misfit))


def _search_by_truth(prober: ByTruth, declared: RoundReading, clock: Clock) -> RoundExplanation:
    first = prober.trial(declared, 0)
    if first is None:
        raise InvalidCase("The declared client cannot be run on the truth; state its algorithm with --local-update.")
    others: list[ReadingTrial] = []
    frontier = [first]
    for depth in (0.5, 1.0):
        for place, start in enumerate(frontier):
            for reading in _readings(start):
                if clock.spent >= 1:
                    break
                trial = prober.trial(reading, 0)
                if trial is None:
                    continue
                others += _with_length(prober, trial)
                clock.tick(trial.fit.misfit, depth * (place + 1) / len(frontier))
        others += _with_length(prober, first)[1:] if depth < 1 else []
        if first.explains or any(trial.explains for trial in others):
            break
        frontier = sorted(others, key=_misfit)[:_WIDER]
    return RoundExplanation(first, tuple(sorted(others, key=_simplest_first)), first)


def _search_by_attack(prober: ByAttack, declared: RoundReading, clock: Clock) -> RoundExplanation:
    first = prober.trial(declared, _RUNGS[0][0])
    if first is None:
        raise InvalidCase(
            "No attack can try this round as it is declared; state the local algorithm and the number of examples "
            "with --local-update and --batch-size."
        )
    first = prober.with_control(first)
    if first.explains:
        return RoundExplanation(first, ())
    others: list[ReadingTrial] = []
    frontier = [first]
    for depth in (0.5, 1.0):
        fresh = list(_try(prober, (one for start in frontier for one in _readings(start)), _RUNGS[0], clock, depth))
        fresh = _climb(prober, [first, *fresh] if depth < 1 else fresh, clock, depth)
        first = next((trial for trial in fresh if not trial.reading.kinds), first)
        others += [trial for trial in fresh if trial.reading.kinds]
        if first.explains or any(trial.explains for trial in others) or clock.spent >= 1:
            break
        frontier = sorted(others, key=_misfit)[:_DEEPER]
    return RoundExplanation(first, tuple(sorted(others, key=_simplest_first)))


def _try(
    prober: ByAttack, readings: Iterable[RoundReading], rung: tuple[int, int], clock: Clock, depth: float
) -> Iterator[ReadingTrial]:
    for reading in readings:
        if clock.spent >= 1:
            return
        trial = prober.trial(reading, rung[0])
        if trial is not None:
            clock.tick(trial.fit.misfit, depth * 0.5 * clock.spent)
            yield trial


def _climb(prober: ByAttack, trials: list[ReadingTrial], clock: Clock, depth: float) -> list[ReadingTrial]:
    """Longer attacks for the readings that did best, the declared one always among them, and controls for the last."""
    done: list[ReadingTrial] = []
    for (_, kept), (steps, _) in zip(_RUNGS, (*_RUNGS[1:], _RUNGS[-1])):
        trials = sorted(trials, key=_misfit)
        going = [trial for place, trial in enumerate(trials) if place < kept or not trial.reading.kinds]
        done += [trial for trial in trials if trial not in going]
        going = [prober.with_control(trial) for trial in going]
        if clock.spent >= 1 or any(trial.fits_but_for_length for trial in going):
            trials = going
            break
        trials = [longer for one in going for longer in _try(prober, [one.reading], (steps, 0), clock, depth)] or going
    finished = [trial if trial.control else prober.with_control(trial) for trial in trials]
    return [*done, *(scaled for trial in finished for scaled in _with_length(prober, trial))]


def _readings(start: ReadingTrial) -> Iterator[RoundReading]:
    """The readings that one more thing otherwise gives."""
    for kind, rule in READINGS.items():
        if kind not in start.reading.kinds:
            yield from rule(start.seen)


def _with_length(prober: Prober, trial: ReadingTrial) -> list[ReadingTrial]:
    """The trial, and if only its length is amiss the same client at the rate that puts it right."""
    found = [trial]
    for _ in range(4):  # the length of several steps is not quite proportional to their rate
        last = found[-1]
        if last.explains or not last.fits_but_for_length:
            break
        scaled = rescale(replace(last.seen, reading=trial.reading), last.fit.scale)
        again = None if scaled is None else prober.trial(scaled, trial.steps)
        if again is None:
            break
        found = [trial, replace(again, control=again.control or trial.control)]
    return found


def _misfit(trial: ReadingTrial) -> float:
    return trial.fit.misfit if math.isfinite(trial.fit.misfit) else math.inf


def _simplest_first(trial: ReadingTrial) -> tuple[bool, int, float]:
    return not trial.explains, len(trial.reading.kinds), _misfit(trial) if not trial.explains else trial.fit.residual
