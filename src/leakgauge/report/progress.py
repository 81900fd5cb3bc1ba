"""Live progress on stderr: which case, which step and how fast, the loss so far, the time left of it and of all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from statistics import fmean

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from leakgauge.attacks.budget import budget_of
from leakgauge.audit.case import Case
from leakgauge.progress import Progress as AttackProgress
from leakgauge.progress import Tick, Watch
from leakgauge.tradeoff.run import Stages


class Pace:
    """How fast one case goes, by its ticks since the first: what came before that may be another process's work.

    Its time goes by the share of the budget that is spent, so it holds for budgets of steps and of seconds alike.
    """

    def __init__(self, began: float) -> None:
        self.began = began
        self._ticks: list[tuple[float, Tick]] = []

    def tick(self, now: float, tick: Tick) -> None:
        self._ticks = [*self._ticks[:1], (now, tick)]  # the first and the last

    @property
    def fraction(self) -> float:
        """The share of the budget that is spent."""
        return self._ticks[-1][1].fraction if self._ticks else 0.0

    @property
    def steps_per_second(self) -> float | None:
        seconds, steps, _ = self._since_first()
        return steps / seconds if seconds > 0 and steps > 0 else None

    @property
    def left(self) -> float | None:
        seconds, _, share = self._since_first()
        return seconds / share * (1 - self._ticks[-1][1].fraction) if share > 0 else None

    @property
    def total(self) -> float | None:
        """How long the case takes from its start to its end, in one process."""
        seconds, _, share = self._since_first()
        return self._ticks[0][0] - self.began + seconds / share if share > 0 else None

    def _since_first(self) -> tuple[float, int, float]:
        if not self._ticks:
            return 0.0, 0, 0.0
        (then, first), (now, last) = self._ticks[0], self._ticks[-1]
        return now - then, last.step - first.step, last.fraction - first.fraction


class Forecast:
    """The time left of all cases, given by their attacks' names, since a case holds the truth and attacks hold this.

    One to come takes as long as those of its attack, or else as the seconds it was given, of which ``given`` holds one
    for each case, or else as the average attack. Cases start in their order, each in a slot: what was in it before is
    over, what is in others runs beside it.
    """

    def __init__(self, attacks: Sequence[str], given: Sequence[float | None] = ()) -> None:
        self.attacks = tuple(attacks)
        self.given = tuple(given) or (None,) * len(self.attacks)
        self._took: dict[str, list[float]] = {}
        self._running: dict[int, tuple[int, Pace]] = {}
        self._started = 0

    def start(self, index: int, now: float, slot: int = 0) -> Pace:
        """The next case begins, so the one before it is over."""
        before, pace = self._running.get(slot, (index, Pace(now)))
        if before != index:  # a case may begin anew, after what prepares it
            took = now - pace.began if pace.total is None else pace.total
            self._took.setdefault(self.attacks[before], []).append(took)
        pace = Pace(now)
        self._running[slot] = index, pace
        self._started = max(self._started, index + 1)  # one that was put back begins again
        return pace

    @property
    def done(self) -> float:
        """How many cases are done, those under way by their share."""
        return self._started - len(self._running) + sum(pace.fraction for _, pace in self._running.values())

    @property
    def left(self) -> float | None:
        expected = {name: fmean(durations) for name, durations in self._took.items()}
        for index, pace in self._running.values():
            if pace.total is not None:
                expected.setdefault(self.attacks[index], pace.total)
        known = [*expected.values(), *(one for one in self.given if one is not None)]
        if not known or not self._running:
            return None
        average = fmean(expected.values() or known)

        def whole(index: int) -> float:
            own = expected.get(self.attacks[index], self.given[index])
            return average if own is None else own

        running = self._running.values()
        if all(pace.left is None and self.given[index] is None for index, pace in running):
            return None
        work = sum(whole(index) if pace.left is None else pace.left for index, pace in running)
        work += sum(whole(index) for index in range(self._started, len(self.attacks)))
        return work / len(self._running)


@contextmanager
def training_progress(
    console: Console, label: str = "data and model", doing: str = "training"
) -> Iterator[AttackProgress]:
    """A bar for a training, or what else is one piece of work; ``label`` is what is made ready before it begins."""
    with progress_bar(console, TimeRemainingColumn(compact=True)) as bar:
        task = bar.add_task("preparing", total=None, detail=label)

        def step(tick: Tick) -> None:
            bar.update(task, description=doing, total=1.0, completed=tick.fraction, detail=f"{label}, step {tick.step}")

        yield step


def case_progress(
    console: Console, cases: Sequence[Case], clock: Callable[[], float] = time.monotonic
) -> AbstractContextManager[Watch]:
    """A bar over all cases and one for each that is under way, each with its time left."""
    budgets = [budget_of(case.attack) for case in cases]
    given = [None if budget is None else budget.seconds for budget in budgets]
    return work_progress(console, [case.attack_name for case in cases], clock, given)


@contextmanager
def work_progress(
    console: Console,
    kinds: Sequence[str],
    clock: Callable[[], float] = time.monotonic,
    given: Sequence[float | None] = (),
) -> Iterator[Watch]:
    """A bar over all pieces of work, of which those of a kind take equally long, and one for each under way.

    Of pieces with ``given`` seconds the time left is known before their first step ends.
    """
    forecast = Forecast(kinds, given)
    with progress_bar(console, TextColumn("{task.fields[left]}", style="cyan")) as bar:
        everything = bar.add_task("attacking", total=float(len(kinds)), left="", detail="")
        bars = {0: bar.add_task("this attack", total=1.0, left="", detail="")}

        def of(index: int, title: str, slot: int = 0) -> AttackProgress:
            pace = forecast.start(index, clock(), slot)
            if slot not in bars:
                bars[slot] = bar.add_task("beside it", total=1.0, left="", detail="")
            bar.update(everything, completed=forecast.done, detail=f"{index + 1} of {len(kinds)}: {title}")
            bar.update(bars[slot], completed=0.0, left=time_left(forecast.given[index]), detail="")
            if (left := forecast.left) is not None:
                bar.update(everything, left=time_left(left))

            def tick(tick: Tick) -> None:
                pace.tick(clock(), tick)
                bar.update(everything, completed=forecast.done)
                if (left := forecast.left) is not None:  # otherwise what was last known stays
                    bar.update(everything, left=time_left(left))
                bar.update(
                    bars[slot], completed=tick.fraction, left=time_left(pace.left), detail=describe_tick(tick, pace)
                )

            return tick

        yield of
        bar.update(everything, completed=float(len(kinds)), left="", detail="done")


def describe_tick(tick: Tick, pace: Pace) -> str:
    """Where an attack stands, such as "step 120, 34.5 steps/s, loss 1.2e-03"."""
    rate = pace.steps_per_second
    speed = () if rate is None else (f"{rate:.1f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s/step",)
    loss = () if math.isnan(tick.loss) else (f"loss {tick.loss:.1e}",)
    return ", ".join((f"step {tick.step}", *speed, *loss))


def time_left(seconds: float | None) -> str:
    """A duration as a clock shows it, or nothing while it is not known.

    >>> time_left(83.6)
    '1:24 left'
    >>> time_left(4000)
    '1:06:40 left'
    """
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} left" if hours else f"{minutes}:{rest:02} left"


def progress_bar(console: Console, remaining: ProgressColumn) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        remaining,
        TextColumn("{task.fields[detail]}", style="dim"),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # in a log file, a bar is only blank lines
    )


def stages(console: Console) -> Stages:
    """Draws what a trade-off reports: a bar for each training, then those of the attacks."""
    return Stages(partial(training_progress, console), partial(case_progress, console))
