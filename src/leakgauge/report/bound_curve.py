"""The most that any attacker could identify over epsilon as an SVG, with what the attacks found as points below it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from leakgauge.bounds import GaussianGuarantee
from leakgauge.defences import DELTA
from leakgauge.gaussian_mechanism import gaussian_epsilon
from leakgauge.metrics import Identification
from leakgauge.report.charts import Mark
from leakgauge.report.tradeoff_words import describe_condition
from leakgauge.report.words import humanise, show_hits
from leakgauge.tradeoff.result import Tradeoff

WIDTH, HEIGHT = 560.0, 240.0
_LOW, _HIGH = 0.1, 100.0
_LEAST, _MOST, _POINTS = 0.02, 12.0, 80
_TICKS = (0.1, 1.0, 10.0, 100.0)


class CurvePoint(NamedTuple):
    """One cell: its epsilon in one round, the share that was identified with its interval, and the words for both."""

    number: int
    x: float
    y: float
    top: float
    bottom: float
    words: str


@dataclass(frozen=True)
class BoundCurve:
    """What the template draws, in pixels: a line for each number of guesses, and the cells that have a bound."""

    lines: tuple[tuple[str, str], ...]
    marks: tuple[CurvePoint, ...]
    x_ticks: tuple[Mark, ...]
    y_ticks: tuple[Mark, ...]
    width: float = WIDTH
    height: float = HEIGHT


def bound_curve(result: Tradeoff) -> BoundCurve | None:
    """The bound of one round over its epsilon; None where no row has one."""
    marks, games = [], {}
    for number, row in enumerate(result.rows, start=1):
        for condition, bound in row.bounds.items():
            cell = row.cells.get(condition)
            seen = None if cell is None else cell.measured(Identification.name)
            if bound.at_most is None or bound.epsilon is None or seen is None:
                continue
            games[bound.guesses, bound.crowd] = bound.chance
            words = (
                f"{humanise(row.defence)}, {describe_condition(condition)}: found {show_hits(seen.attack)}, at most "
                f"{100 * bound.at_most:.3g} % at epsilon {bound.epsilon:.3g}"
            )
            mean, low, high = seen.attack.mean, seen.attack.low, seen.attack.high
            top, bottom = (_up(one if math.isfinite(one) else mean) for one in (high, low))
            marks.append(CurvePoint(number, _across(bound.epsilon), _up(mean), top, bottom, words))
    if not marks:
        return None
    lines = tuple(
        (f"batch {guesses}, one in {crowd + 1}", _line(chance)) for (guesses, crowd), chance in sorted(games.items())
    )
    across = tuple(Mark(_across(value), f"{value:g}") for value in _TICKS)
    up = tuple(Mark(_up(share), f"{100 * share:.0f} %") for share in (0.0, 0.25, 0.5, 0.75, 1.0))
    return BoundCurve(lines, tuple(marks), across, up)


def _line(chance: float) -> str:
    # From noise to both, since epsilon has no inverse in closed form.
    shifts = [_LEAST * (_MOST / _LEAST) ** (index / (_POINTS - 1)) for index in range(_POINTS)]
    found = [(gaussian_epsilon(shift, DELTA), GaussianGuarantee(shift).success(chance)) for shift in shifts]
    return " ".join(f"{_across(epsilon)},{_up(share)}" for epsilon, share in found if _LOW <= epsilon <= _HIGH)


def _across(epsilon: float) -> float:
    share = math.log(min(max(epsilon, _LOW), _HIGH) / _LOW) / math.log(_HIGH / _LOW)
    return round(WIDTH * share, 1)


def _up(share: float) -> float:
    return round(HEIGHT * (1 - share), 1)
