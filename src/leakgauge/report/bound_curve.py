"""The most that any attacker could identify over epsilon as an SVG, with what the attacks found as points below it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from leakgauge.audit.result import AuditResult
from leakgauge.bounds import Bound, GaussianGuarantee
from leakgauge.defences import DELTA
from leakgauge.gaussian_mechanism import gaussian_epsilon
from leakgauge.metrics import Identification, Summary
from leakgauge.report.charts import Mark
from leakgauge.report.judgements import luck
from leakgauge.report.tradeoff_words import describe_condition
from leakgauge.report.words import humanise, show_hits, standings
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
    """What the template draws, in pixels: a line for each number of guesses, and the cells that have a bound.

    ``above`` says of each point over its line how probable that is by luck.
    """

    lines: tuple[tuple[str, str], ...]
    marks: tuple[CurvePoint, ...]
    x_ticks: tuple[Mark, ...]
    y_ticks: tuple[Mark, ...]
    above: tuple[str, ...] = ()
    width: float = WIDTH
    height: float = HEIGHT


class Bounded(NamedTuple):
    """What was found under a defence, beside what any attacker could find."""

    number: int
    name: str
    bound: Bound
    found: Summary


def bound_curve(result: Tradeoff | AuditResult) -> BoundCurve | None:
    """The bound of one round over its epsilon; None where no row has one."""
    marks, games, above = [], {}, []
    for one in _of_audit(result) if isinstance(result, AuditResult) else _of_tradeoff(result):
        bound, seen = one.bound, one.found
        if bound.at_most is None or bound.epsilon is None:
            continue
        games[bound.guesses, bound.crowd] = bound.chance
        most = f"{100 * bound.at_most:.3g} % at epsilon {bound.epsilon:.3g}"
        words = f"{one.name}: found {show_hits(seen)}, at most {most}"
        top, bottom = (_up(end if math.isfinite(end) else seen.mean) for end in (seen.high, seen.low))
        if seen.mean > bound.at_most:
            above.append(f"{one.number} ({show_hits(seen)}): {luck(seen, bound):.2g}")
        marks.append(CurvePoint(one.number, _across(bound.epsilon), _up(seen.mean), top, bottom, words))
    if not marks:
        return None
    lines = tuple(
        (f"batch {guesses}, one in {crowd + 1}", _line(chance)) for (guesses, crowd), chance in sorted(games.items())
    )
    across = tuple(Mark(_across(value), f"{value:g}") for value in _TICKS)
    up = tuple(Mark(_up(share), f"{100 * share:.0f} %") for share in (0.0, 0.25, 0.5, 0.75, 1.0))
    return BoundCurve(lines, tuple(marks), across, up, tuple(above))


def _of_tradeoff(result: Tradeoff) -> Iterator[Bounded]:
    for number, row in enumerate(result.rows, start=1):
        for condition, bound in row.bounds.items():
            cell = row.cells.get(condition)
            seen = None if cell is None else cell.measured(Identification.name)
            if seen is not None:
                yield Bounded(number, f"{humanise(row.defence)}, {describe_condition(condition)}", bound, seen.attack)


def _of_audit(result: AuditResult) -> Iterator[Bounded]:
    for number, row in enumerate(standings(result), start=1):
        seen = row.measured(Identification.name)
        if seen is not None and row.bound is not None:
            yield Bounded(number, humanise(row.defence), row.bound, seen.attack)


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
