"""Live progress on stderr: which case, which step, the loss so far, the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from leakgauge.attacks.base import Progress as AttackProgress
from leakgauge.attacks.base import Tick
from leakgauge.audit.case import Case


@contextmanager
def training_progress(console: Console) -> Iterator[Callable[[int, int], None]]:
    """A bar for the training of the victim model."""
    with _bar(console) as bar:
        task = bar.add_task("preparing", total=None, detail="data and model")

        def step(done: int, total: int) -> None:
            bar.update(task, description="training", total=total, completed=done, detail=f"step {done}/{total}")

        yield step


@contextmanager
def case_progress(console: Console, cases: Sequence[Case]) -> Iterator[Callable[[int, Case], AttackProgress]]:
    """One bar over all cases; its time left counts the cases still to come."""
    with _bar(console) as bar:
        task = bar.add_task("attacking", total=float(len(cases)), detail="")

        def of(index: int, case: Case) -> AttackProgress:
            name = f"{case.defence}, {case.attack_name}" + (" (null)" if case.null else "")
            bar.update(task, completed=float(index), detail=name)

            def tick(tick: Tick) -> None:
                bar.update(
                    task, completed=index + tick.fraction, detail=f"{name}: step {tick.step}, loss {tick.loss:.2e}"
                )

            return tick

        yield of
        bar.update(task, completed=float(len(cases)), detail="done")


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[detail]}", style="dim"),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # in a log file, a bar is only blank lines
    )
