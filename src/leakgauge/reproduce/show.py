"""An experiment for people: a table, a sheet of images, a bar while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text
from torch import Tensor

from leakgauge.audit.case import Case
from leakgauge.progress import Progress as AttackProgress
from leakgauge.progress import Tick
from leakgauge.protocol.local_update import FedSGD
from leakgauge.report.images import paired, write_strips
from leakgauge.report.progress import Forecast, in_words, time_left
from leakgauge.reproduce.experiment import Published
from leakgauge.reproduce.result import Measured, Reproduction, RowResult
from leakgauge.reproduce.run import Watch


def table(result: Reproduction) -> Table:
    """The published number beside ours, the null, and the work behind it; made for a console of 100 columns."""
    if result.experiment.shown > 1:
        return _table_of_several(result)
    experiment, metric = result.experiment, result.experiment.metrics[0]
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), title=_title(result), title_justify="left")
    grid.add_column("setting", overflow="fold", min_width=24)
    columns = ["published", f"ours\n({metric})", "null", "images", "steps", "seconds"]
    if experiment.best:
        columns.insert(2, f"best {experiment.best}\n(null)")
    for name in columns:
        grid.add_column(name, justify="right")
    for row in result.rows:
        ours, null = (one(metric, experiment.best) for one in (row.measured, row.null))
        cells = [_published(row.row.published), _number(ours), _number(null), str(ours.images), _steps(row)]
        if experiment.best:
            cells.insert(2, f"{_plain(ours.best)}\n({_plain(null.best)})")
        grid.add_row(_setting(row), *cells, f"{row.seconds:.3g}")
    return _with_notes(grid, result)


def _title(result: Reproduction) -> str:
    return f"{result.experiment.title} (scale {result.scale})"


def _table_of_several(result: Reproduction) -> Table:
    """For each metric ours, the published number and the null; what a defence costs, where that was measured."""
    experiment = result.experiment
    metrics = experiment.metrics[: experiment.shown]
    costs = any(row.utility is not None for row in result.rows)
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), title=_title(result), title_justify="left")
    grid.add_column("setting", overflow="fold", min_width=24)
    if costs:
        grid.add_column("accuracy, time\nours, published", justify="right")
    form = "mean (best, s.d.): " if experiment.per_image else ""
    for metric in metrics:
        grid.add_column(f"{metric}\n{form}ours, published, null", justify="right")
    for name in ("updates", "seconds"):
        grid.add_column(name, justify="right")
    for row in result.rows:
        cells = [_cost(row)] if costs else []
        for metric in metrics:
            ours, null = (
                one(metric, experiment.best, per_image=experiment.per_image) for one in (row.measured, row.null)
            )
            given = _given(row.row.published_of(metric, metrics[0]))
            joint = ",\n" if experiment.per_image else ", "
            cells.append(joint.join((_three(ours, experiment.per_image), given, _three(null, experiment.per_image))))
        grid.add_row(_setting(row), *cells, str(len(row.records)), f"{row.seconds:.3g}")
    return _with_notes(grid, result)


def _three(value: Measured, spread: bool = False) -> str:
    if value.mean is None:
        return "not measured"
    return f"{value.mean:.3f}" + (f" ({_brief(value.best)}, {_brief(value.deviation)})" if spread else "")


def _given(value: Published | None) -> str:
    if value is None or value.mean is None:
        return "-"
    more = value.best is not None or value.deviation is not None
    return f"{value.mean:.3f}" + (f" ({_brief(value.best)}, {_brief(value.deviation)})" if more else "")


def _brief(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _cost(row: RowResult) -> str:
    if row.utility is None:
        return "-"
    spent, seen = row.utility.overhead, row.utility.accuracy
    accuracy = "diverged" if row.utility.diverged else f"{seen.mean:.3f}" if seen.count else "not measured"
    time = f"×{spent.median:.2f}" if spent.count else "not measured"
    return f"{accuracy}, {time}\n{_given(row.row.also.get('accuracy'))}, {_given(row.row.also.get('time'))}"


def _with_notes(grid: Table, result: Reproduction) -> Table:
    grid.caption = Text("\n".join(f"- {note}" for note in result.notes), "dim")
    grid.caption_justify = "left"
    return grid


def write_sheet(result: Reproduction, path: Path) -> Path | None:
    """For each row a line of private images above a line of what came back; None if there is none.

    The first images, or the best where the paper shows its best ones.
    """
    return write_strips([one for row in result.rows if (one := _strip(result, row)) is not None], path)


@contextmanager
def watching(console: Console, labels: Sequence[str], clock: Callable[[], float] = time.monotonic) -> Iterator[Watch]:
    """A bar over all attacks of an experiment, with the time left of all and of the one at hand."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[left]}", style="cyan"),
        TextColumn("{task.fields[detail]}", style="dim"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        yield _Bars(bar, labels, clock)


class _Bars:
    def __init__(self, bar: Progress, labels: Sequence[str], clock: Callable[[], float]) -> None:
        self.bar, self.labels, self.clock = bar, labels, clock
        self.forecast = Forecast(labels)
        self.everything = bar.add_task("reproducing", total=float(len(labels)), left="", detail="")
        self.one = bar.add_task("preparing", total=1.0, left="", detail="")

    def training(self, label: str) -> AttackProgress:
        def step(tick: Tick) -> None:
            self.bar.update(self.everything, detail=label)
            self.bar.update(
                self.one, description="training", completed=tick.fraction, left="", detail=f"step {tick.step}"
            )

        return step

    def attacking(self, number: int, case: Case) -> AttackProgress:
        pace = self.forecast.start(number, self.clock())
        name = case.attack_name + (" (null)" if case.null else "")
        position = f"{number + 1} of {len(self.labels)}: {name}"
        self.bar.update(self.everything, completed=float(number), detail=position)
        self.bar.update(self.one, description="this attack", total=1.0, completed=0.0, left="", detail="")

        def tick(tick: Tick) -> None:
            pace.tick(self.clock(), tick)
            self.bar.update(self.everything, completed=number + tick.fraction, left=time_left(self.forecast.left))
            self.bar.update(self.one, completed=tick.fraction, left=time_left(pace.left), detail=in_words(tick, pace))

        return tick


def _setting(row: RowResult) -> Text:
    text = Text(row.row.label)
    if row.setting.training is not None:
        share = "" if row.accuracy is None else f", accuracy {100 * row.accuracy:.0f} %"
        text.append(f"\ntrained {row.setting.training.steps} steps{share}", "dim")
    parts = [brief(row.setting.model)]
    if row.setting.local_update != FedSGD():
        parts.append(brief(row.setting.local_update))
    return text.append("\n" + ", ".join(parts), "dim")


def brief(part: Any) -> str:
    """A configuration without what is its default.

    >>> from leakgauge.models import ResNet
    >>> brief(ResNet(depth=34))
    'ResNet(depth=34)'
    """
    changed = (f"{one.name}={value!r}" for one in fields(part) if (value := getattr(part, one.name)) != one.default)
    return f"{type(part).__name__}({', '.join(changed)})"


def _published(value: Published | None) -> str:
    if value is None:
        return "-"
    if value.mean is None:
        return "not given\nas text"
    if value.deviation is None:
        return f"{value.mean:.2f}"
    return f"{value.mean:.2f} ± {value.deviation:.2f}" + ("\n(s.e.)" if value.spread == "standard error" else "")


def _number(value: Measured) -> str:
    if value.mean is None:
        return "not\nmeasured"
    return _plain(value.mean) + ("" if value.deviation is None else f" ± {value.deviation:.2f}")


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _steps(row: RowResult) -> str:
    if row.steps is None:
        return "-"
    fewest, most = row.steps
    return str(most) if fewest == most else f"{fewest}–{most}"


def _strip(result: Reproduction, row: RowResult) -> Tensor | None:
    scored = [
        (score, original, found)
        for record in row.records
        if record.pictures.originals is not None and record.pictures.reconstructions is not None
        for score, original, found in zip(
            record.scores[result.experiment.metrics[0]],
            record.pictures.originals,
            record.pictures.reconstructions,
            strict=True,
        )
        if bool(torch.isfinite(found).all())
    ]
    if result.experiment.best and not result.experiment.per_image:
        scored = sorted(scored, key=lambda one: one[0], reverse=True)[: result.experiment.best]
    if not scored:
        return None
    _, originals, found = zip(*scored, strict=True)
    return paired(originals, found)
