"""Whether an update is explained, and by which reading, in words and as a table."""

from __future__ import annotations

import math
from shlex import quote

from rich.text import Text

from leakgauge.audit.explain import RoundCheck, RoundExplanation
from leakgauge.audit.reading_trials import ReadingTrial
from leakgauge.report.grids import FittedTable
from leakgauge.report.words import NOT_MEASURED

_SHOWN = 12
"""Readings in the table; the JSON has all."""


def check_sentence(check: RoundCheck) -> str:
    """Whether the declared client explains the update."""
    if check.explained is None:
        rest = "" if math.isnan(check.residual) else f" ({share(check.residual)} of it is left over so far)"
        return f"Whether the declared client explains the update cannot be said{rest}."
    left = f"{share(check.residual)} of it is left over"
    if not math.isnan(check.truth):
        left += f", of the truth's own update {share(check.truth)}"
    if not math.isnan(check.control):
        left += f"; of a simulated client's {share(check.control)}"
    return f"The update is {'' if check.explained else 'not '}explained by the declared client: {left}."


def explanation_sentences(found: RoundExplanation) -> list[str]:
    """The answer first; then how sure it is, and what to type."""
    best, declared = found.best, found.declared
    if best is None:
        near = found.others[0] if found.others else declared
        return [
            f"No reading that was tried explains the update; {share(_left(near))} of it is left over at the least, if "
            f"{near.reading.words}.",
            "Check that these are the weights the client started from and the model it trained, and what else it does "
            "that is not declared.",
        ]
    if found.other_inputs:
        first = "The update is explained, but by other inputs than the truth given"
        first += "." if best is declared else f", if {best.reading.words}."
        rest = ["The truth is another client's, one of several, or was altered before training (cropped, turned)."]
    elif best is declared:
        first, rest = f"The update is explained as declared: {share(best.fit.residual)} of it is left over.", []
    else:
        first = f"The update is not explained as declared, but if {best.reading.words}."
        rest = [f"Then {share(best.fit.residual)} of it is left over, as declared {share(declared.fit.residual)}."]
    if found.rivals:
        rest.append(f"Not sure: it is also explained if {found.rivals[0].reading.words}.")
    if found.words_to_type:
        rest.append(f"Use: {' '.join(map(quote, found.words_to_type))}")
    return [first, *rest]


def explanation_table(found: RoundExplanation) -> FittedTable:
    """The readings that were tried, the best first."""
    numbers = ("left over", "but for length", "simulated")
    rows = []
    for trial in (found.declared, *found.others[:_SHOWN]):
        control = NOT_MEASURED if trial.control is None else share(trial.control.residual)
        cells = (trial.reading.words, share(trial.fit.residual), share(trial.fit.misfit), control)
        rows.append([Text(cell, "bold green" if trial.explains else "") for cell in cells])
    return FittedTable(("reading", *numbers), rows, frozenset(numbers))


def share(value: float) -> str:
    """A residual in percent of the update.

    >>> share(0.0042), share(12.0)
    ('0.4 %', '1200 %')
    """
    if math.isnan(value):
        return NOT_MEASURED
    return f"{100 * value:.1f} %" if value < 0.1 else f"{100 * value:.0f} %"


def _left(trial: ReadingTrial) -> float:
    return min(trial.fit.residual, trial.fit.misfit)
