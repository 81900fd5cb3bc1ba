"""Live progress on stderr: which case, which step and how fast, the loss so far, the time left of it and of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from leakgauge.attacks.base import Progress as AttackProgress
from leakgauge.attacks.base import Tick
from leakgauge.audit.case import Case


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

    One to come takes as long as those of its attack, or else as the average attack.
    """

    def __init__(self, attacks: Sequence[str]) -> None:
        self.attacks = tuple(attacks)
        self._took: dict[str, list[float]] = {}
        self._current: tuple[int, Pace] | None = None

    def start(self, index: int, now: float) -> Pace:
        """The next case begins, so the one before it is over."""
        if self._current is not None:
            before, pace = self._current
            took = now - pace.began if pace.total is None else pace.total
            self._took.setdefault(self.attacks[before], []).append(took)
        pace = Pace(now)
        self._current = index, pace
        return pace

    @property
    def left(self) -> float | None:
        if self._current is None:
            return None
        index, pace = self._current
        if pace.left is None or pace.total is None:
            return None
        expected = {name: fmean(durations) for name, durations in self._took.items()}
        expected.setdefault(self.attacks[index], pace.total)
        average = fmean(expected.values())
        return pace.left + sum(expected.get(name, average) for name in self.attacks[index + 1 :])


@contextmanager
def training_progress(console: Console) -> Iterator[Callable[[int, int], None]]:
    """A bar for the training of the victim model."""
    with progress_bar(console, TimeRemainingColumn(compact=True)) as bar:
        task = bar.add_task("preparing", total=None, detail="data and model")

        def step(done: int, total: int) -> None:
            bar.update(task, description="training", total=total, completed=done, detail=f"step {done}/{total}")

        yield step


@contextmanager
def case_progress(
    console: Console, cases: Sequence[Case], clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int, Case], AttackProgress]]:
    """A bar over all cases and one for the case at hand, each with its time left."""
    forecast = Forecast([case.attack_name for case in cases])
    with progress_bar(console, TextColumn("{task.fields[left]}", style="cyan")) as bar:
        everything = bar.add_task("attacking", total=float(len(cases)), left="", detail="")
        one = bar.add_task("this attack", total=1.0, left="", detail="")

        def of(index: int, case: Case) -> AttackProgress:
            pace = forecast.start(index, clock())
            name = f"{case.defence}, {case.attack_name}" + (" (null)" if case.null else "")
            bar.update(everything, completed=float(index), detail=f"{index + 1} of {len(cases)}: {name}")
            bar.update(one, completed=0.0, left="", detail="")

            def tick(tick: Tick) -> None:
                pace.tick(clock(), tick)
                bar.update(everything, completed=index + tick.fraction)
                if (left := forecast.left) is not None:  # otherwise what was last known stays
                    bar.update(everything, left=time_left(left))
                bar.update(one, completed=tick.fraction, left=time_left(pace.left), detail=in_words(tick, pace))

            return tick

        yield of
        bar.update(everything, completed=float(len(cases)), left="", detail="done")


def in_words(tick: Tick, pace: Pace) -> str:
    """Where an attack stands, such as "step 120, 34.5 steps/s, loss 1.2e-03"."""
    rate = pace.steps_per_second
    speed = () if rate is None else (f"{rate:.1f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s/step",)
    return ", ".join((f"step {tick.step}", *speed, f"loss {tick.loss:.1e}"))


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
