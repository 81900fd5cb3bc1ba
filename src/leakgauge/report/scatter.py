"""Accuracy against leakage as an SVG: every row a point with its intervals, and the front that nothing beats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from leakgauge.catalogue import describe_metric
from leakgauge.report.charts import Mark
from leakgauge.report.tradeoff_words import describe_condition
from leakgauge.report.words import humanise
from leakgauge.tradeoff.result import Point, Tradeoff

WIDTH, HEIGHT = 560.0, 320.0


class Spot(NamedTuple):
    """One row: where it lies, how far its intervals reach, and what it is called."""

    number: int
    name: str
    words: str
    x: float
    y: float
    left: float
    right: float
    top: float
    bottom: float
    on_front: bool
    label_x: float
    label_y: float


@dataclass(frozen=True)
class Scatter:
    """What the template draws, in pixels; leakage to the right, accuracy upwards."""

    marks: tuple[Spot, ...]
    front: str
    x_ticks: tuple[Mark, ...]
    y_ticks: tuple[Mark, ...]
    x_title: str
    limit: float | None
    left_out: tuple[str, ...]
    width: float = WIDTH
    height: float = HEIGHT


class Scale(NamedTuple):
    """A linear map of [low, high] onto pixels; ``flip`` where more lies at the start."""

    low: float
    high: float
    pixels: float
    flip: bool = False

    def __call__(self, value: float) -> float:
        """
        >>> Scale(0.0, 2.0, 100.0)(0.5), Scale(0.0, 2.0, 100.0, flip=True)(0.5)
        (25.0, 75.0)
        """
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.pixels * (1 - share if self.flip else share), 1)


def scatter(result: Tradeoff) -> Scatter | None:
    """The picture of a trade-off; None while no row has both numbers."""
    points = result.points()
    if not points:
        return None
    metric = describe_metric(result.axis)
    # Where less is leakier, less lies to the right.
    across = _scale([_reach(point) for point in points], WIDTH, whole=metric.binary, flip=not metric.higher_is_leakier)
    accuracies = [(point.accuracy.low, point.accuracy.high) for point in points]
    up = _scale(accuracies, HEIGHT, whole=False, flip=True, most=1.0)
    front = result.front()
    numbers = {row.defence: index for index, row in enumerate(result.rows, start=1)}
    marks: list[Spot] = []
    for point in points:
        marks.append(_mark(point, numbers[point.row.defence], across, up, point in front, marks))
    limit = result.limit.get(metric.name)
    return Scatter(
        marks=tuple(marks),
        front=_staircase([(across(point.leakage.mean), up(point.accuracy.mean)) for point in front]),
        x_ticks=_ticks(across, percent=metric.binary),
        y_ticks=_ticks(up, percent=True),
        x_title=f"{metric.title}, the worst over batch sizes and attackers (right leaks more)",
        limit=None if limit is None else across(limit),
        left_out=tuple(humanise(row.defence) for row in result.rows if row not in [point.row for point in points]),
    )


def _mark(point: Point, number: int, across: Scale, up: Scale, on_front: bool, others: list[Spot]) -> Spot:
    x, y = across(point.leakage.mean), up(point.accuracy.mean)
    low, high = _reach(point)
    left, right = sorted((across(low), across(high)))
    label_y = y - 8
    # Points may coincide, such as all that leak nothing: their numbers then stand side by side.
    label_x = x + 8
    while any(abs(label_x - one.label_x) < 13 and abs(label_y - one.label_y) < 11 for one in others):
        label_x += 14
    return Spot(
        number,
        humanise(point.row.defence),
        f"{humanise(point.row.defence)}: accuracy {100 * point.accuracy.mean:.1f} %, leakage "
        f"{point.leakage.mean:.3g} ({describe_condition(point.condition)})",
        x,
        y,
        left,
        right,
        up(point.accuracy.high),
        up(point.accuracy.low),
        on_front,
        label_x,
        label_y,
    )


def _reach(point: Point) -> tuple[float, float]:
    seen = point.leakage
    return (seen.mean, seen.mean) if math.isnan(seen.low) else (seen.low, seen.high)


def _scale(
    reaches: list[tuple[float, float]], pixels: float, *, whole: bool, flip: bool, most: float = math.inf
) -> Scale:
    if whole:
        return Scale(0.0, 1.0, pixels, flip)
    low, high = min(low for low, _ in reaches), max(high for _, high in reaches)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return Scale(low - margin, min(high + margin, most) if high < most else high, pixels, flip)


def _ticks(scale: Scale, *, percent: bool) -> tuple[Mark, ...]:
    """Round values, four or five of them."""
    span = scale.high - scale.low
    step = 10 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 5.5)
    first = math.ceil(scale.low / step - 1e-9)
    values = [index * step for index in range(first, math.floor(scale.high / step + 1e-9) + 1)]
    return tuple(Mark(scale(value), f"{100 * value:.0f} %" if percent else f"{value:.4g}") for value in values)


def _staircase(corners: list[tuple[float, float]]) -> str:
    """From point to point by right angles, because nothing between two points was measured: from the least leaky on."""
    path: list[tuple[float, float]] = []
    for x, y in corners:
        if path:
            path.append((x, path[-1][1]))
        path.append((x, y))
    return " ".join(f"{x},{y}" for x, y in path)
