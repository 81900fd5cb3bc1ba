"""A study for people: a table, a sheet of images, a bar while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text
from torch import Tensor

from leakgauge.progress import Tick
from leakgauge.report.images import paired, write_strips
from leakgauge.report.progress import Pace, progress_bar, time_left
from leakgauge.reproduce.experiment import Published
from leakgauge.reproduce.result import Measured
from leakgauge.reproduce.study import Found, Study, StudyResult, StudyWatch


def study_table(result: StudyResult) -> Table:
    """For each metric ours, the published number and the null; made for a console of 100 columns."""
    metrics = result.study.metrics[: result.study.shown]
    grid = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title=f"{result.study.title} (scale {result.scale})",
        title_justify="left",
        caption=Text("\n".join(f"- {note}" for note in result.notes), "dim"),
        caption_justify="left",
    )
    grid.add_column("setting", overflow="fold", min_width=24)
    for metric in metrics:
        grid.add_column(f"{metric}\nours, published, null", justify="right")
    for name in ("images", "seconds"):
        grid.add_column(name, justify="right")
    for line, found in result.rows:
        cells = [
            f"{_ours(found.ours.get(metric))}, {_published(line.published_of(metric, metrics[0]))}, "
            f"{_ours(found.null.get(metric))}"
            for metric in metrics
        ]
        images = max((one.images for one in found.ours.values()), default=0)
        grid.add_row(line.label, *cells, str(images), f"{found.seconds:.3g}")
    return grid


def write_study_sheet(result: StudyResult, path: Path) -> Path | None:
    """For each row a line of private images above a line of what came back; None if no row has pictures."""
    return write_strips([drawn for _, found in result.rows if (drawn := _drawn(found)) is not None], path)


@contextmanager
def watching_study(console: Console, study: Study, clock: Callable[[], float] = time.monotonic) -> Iterator[StudyWatch]:
    """A bar over the parts of a study and one for the part at hand, with its time left."""
    with progress_bar(console, TextColumn("{task.fields[left]}", style="cyan")) as bar:
        yield _Bars(bar, len(study.parts), clock)


class _Bars:
    def __init__(self, bar: Progress, parts: int, clock: Callable[[], float]) -> None:
        self.bar, self.parts, self.clock = bar, parts, clock
        self.everything = bar.add_task("reproducing", total=float(parts), left="", detail="")
        self.one = bar.add_task("this part", total=1.0, left="", detail="")
        self.what, self.pace, self.steps = "", Pace(clock()), 0

    def part(self, number: int, name: str) -> None:
        self.bar.update(self.everything, completed=float(number), detail=f"{number + 1} of {self.parts}: {name}")
        self.step("", 0.0)

    def step(self, what: str, fraction: float) -> None:
        if what != self.what:
            self.what, self.pace, self.steps = what, Pace(self.clock()), 0
        self.steps += 1
        self.pace.tick(self.clock(), Tick(self.steps, fraction, float("nan")))
        self.bar.update(self.one, completed=fraction, left=time_left(self.pace.left), detail=what)


def _drawn(found: Found) -> Tensor | None:
    if found.originals is None or found.estimates is None:
        return None
    return paired(found.originals, found.estimates)


def _ours(value: Measured | None) -> str:
    if value is None or value.mean is None:
        return "-"
    return f"{value.mean:.3f}" + ("" if value.deviation is None else f" ± {value.deviation:.3f}")


def _published(value: Published | None) -> str:
    if value is None:
        return "-"
    if value.mean is None:
        return "not as text"
    return f"{value.mean:.3f}" + ("" if value.deviation is None else f" ± {value.deviation:.3f}")
