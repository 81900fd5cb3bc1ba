"""The bars of a trade-off: one for each training, then those of the attacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import TimeRemainingColumn

from leakgauge.audit.case import Case
from leakgauge.audit.run import ProgressOf
from leakgauge.report.progress import case_progress, progress_bar


class Bars:
    """Draws on a console what a trade-off reports."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def training(self, label: str) -> Iterator[Callable[[int, int], None]]:
        with progress_bar(self.console, TimeRemainingColumn(compact=True)) as bar:
            task = bar.add_task("training", total=None, detail=label)

            def step(done: int, total: int) -> None:
                bar.update(task, total=total, completed=done, detail=f"{label}, step {done}/{total}")

            yield step

    def attacking(self, cases: Sequence[Case]) -> AbstractContextManager[ProgressOf]:
        return case_progress(self.console, cases)
