"""Evidence that restored labels were read and not guessed: how often a guess would come as near to the true counts.

A guess draws each label by itself, class c with chance q_c. For one class the number drawn is binomial; over all of
them what counts is how many labels are right with multiplicity, sum_c min(n_c, X_c), whose distribution is exact where
that is little work. Else it is drawn, and where no draw comes so near, Chernoff's bound takes its place: counts of one
guess are negatively associated [Joag-Dev and Proschan, 1983], so that classes may be bounded as if independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import binom

Counts = Sequence[int]
"""How many labels of each class."""
Chances = NDArray[np.float64]
"""That a guess is of each class."""

_LEAST = 1e-30
"""Of a p-value: a guess may always be right."""
_EXACT = 1e7
"""Multiplications that an exact distribution may take."""
_DRAWS = 4000
_STEEPEST = 60.0


@dataclass(frozen=True)
class Guess:
    """``draws`` labels guessed with these ``chances``, to be compared with the ``true`` counts of a batch."""

    true: Counts
    draws: int
    chances: Chances

    @property
    def present(self) -> list[tuple[int, float]]:
        """Of the classes that are there, the number of examples and the chance."""
        return [(count, float(self.chances[c])) for c, count in enumerate(self.true) if count]

    @property
    def work(self) -> float:
        return len(self.present) * float(self.draws + 1) ** 3


def labels_right(true: Counts, restored: Counts) -> int:
    """With multiplicity.

    >>> labels_right((2, 0, 1), (1, 1, 1))
    2
    """
    return sum(map(min, true, restored))


def even_chances(classes: int) -> Chances:
    return np.full(classes, 1 / max(classes, 1))


def habit_chances(restored: Sequence[Counts], classes: int) -> Chances:
    """The shares of what was restored elsewhere, with one label more that is spread evenly."""
    total = np.sum(np.asarray(restored, dtype=np.float64).reshape(-1, classes), axis=0)
    return (total + 1 / classes) / (total.sum() + 1)


def chance_of_right(guesses: Sequence[Guess], right: int) -> float:
    """That guesses of all batches together have so many labels right, or more.

    >>> chance_of_right([Guess((1, 0), 1, even_chances(2)), Guess((0, 1), 1, even_chances(2))], 2)
    0.25
    """
    if right <= 0:
        return 1.0
    if sum(guess.work for guess in guesses) > _EXACT:
        return min(1.0, max(_LEAST, min(_drawn(guesses, right), _chernoff(guesses, right))))
    total: NDArray[np.float64] = np.ones(1)
    for guess in guesses:
        total = np.convolve(total, _distribution(guess))
    return min(1.0, max(_LEAST, float(total[right:].sum())))


def chance_of_class(true: int, restored: int, draws: int, chances: Sequence[float]) -> float:
    """That a guess comes as near to the number of examples of a class, at the least favourable of these chances.

    >>> round(chance_of_class(1, 1, 1, (0.01,)), 6)
    0.01
    """
    low, high = min(chances), max(chances)
    likeliest = min(max(true / max(draws, 1), low), high)
    gap = abs(restored - true)
    found = (binom.cdf(true + gap, draws, q) - binom.cdf(true - gap - 1, draws, q) for q in (low, likeliest, high))
    return min(1.0, max(_LEAST, *map(float, found)))


def _distribution(guess: Guess) -> NDArray[np.float64]:
    """The probability of each number of right labels: class after class, from the draws that are left."""
    size, most = guess.draws + 1, min(guess.draws, sum(guess.true)) + 1
    state = np.zeros((size, most))  # draws left, labels right
    state[guess.draws, 0] = 1.0
    left, remaining = np.arange(size), 1.0
    for count, chance in guess.present:
        share = min(1.0, chance / max(remaining, chance, 1e-300))
        moved, chances = np.zeros_like(state), binom.pmf(left[:, None], left, share)
        for drawn in range(size):
            right = min(count, drawn)
            part = state[drawn:] * chances[drawn, drawn:, None]
            moved[: size - drawn, right:] += part[:, : most - right]
        state, remaining = moved, remaining - chance
    return state.sum(axis=0)


def _drawn(guesses: Sequence[Guess], right: int) -> float:
    """By as many guesses as it takes to tell one in a thousand."""
    random = np.random.default_rng(0)
    total = np.zeros(_DRAWS, dtype=np.int64)
    for guess in guesses:
        chances = guess.chances / guess.chances.sum()
        total += np.minimum(random.multinomial(guess.draws, chances, size=_DRAWS), np.asarray(guess.true)).sum(axis=1)
    return float((1 + (total >= right).sum()) / (1 + _DRAWS))


def _chernoff(guesses: Sequence[Guess], right: int) -> float:
    pieces = []
    for guess in guesses:
        for count, chance in guess.present:
            values = np.arange(count + 1)
            chances = binom.pmf(values, guess.draws, chance)
            chances[-1] += binom.sf(count, guess.draws, chance)
            pieces.append((values, chances))
    mean = sum(float(values @ chances) for values, chances in pieces)
    if right <= mean:
        return 1.0

    def exponent(slope: float) -> float:
        # Relative to the largest term, so that nothing overflows.
        tops = sum(slope * float(values[-1]) for values, _ in pieces)
        rest = (math.log(float(np.exp(slope * (values - values[-1])) @ chances)) for values, chances in pieces)
        return tops + sum(rest) - slope * right

    return math.exp(min(0.0, float(minimize_scalar(exponent, bounds=(0.0, _STEEPEST), method="bounded").fun)))
