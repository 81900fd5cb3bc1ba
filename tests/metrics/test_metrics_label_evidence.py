"""The chance that a guess is as near to the true labels as what was restored."""

from __future__ import annotations

from itertools import product
from math import factorial

import numpy as np
import pytest

from leakgauge.metrics import label_evidence
from leakgauge.metrics.label_evidence import (
    Guess,
    chance_of_class,
    chance_of_right,
    even_chances,
    habit_chances,
    labels_right,
)


@pytest.mark.parametrize("chances", [(0.2, 0.5, 0.3), (1.0, 0.0, 0.0), (1 / 3, 1 / 3, 1 / 3)])
@pytest.mark.parametrize("true", [(2, 1, 1), (4, 0, 0), (0, 1, 0)])
def test_the_distribution_of_right_labels_is_that_of_all_answers(
    true: tuple[int, ...], chances: tuple[float, ...]
) -> None:
    guess = Guess(true, 4, np.array(chances))
    expected = np.zeros(sum(true) + 1)
    for answer in product(range(3), repeat=4):
        right = labels_right(true, np.bincount(answer, minlength=3).tolist())
        expected[right] += np.prod([chances[label] for label in answer])
    for right in range(1, sum(true) + 1):
        assert chance_of_right([guess], right) == pytest.approx(max(expected[right:].sum(), 1e-30))


def test_batches_are_taken_together() -> None:
    one = Guess((1, 0, 0, 0), 1, even_chances(4))
    assert chance_of_right([one] * 3, 3) == pytest.approx(1 / 64)
    assert chance_of_right([one] * 3, 2) == pytest.approx(10 / 64)
    assert chance_of_right([one] * 3, 0) == 1


def test_distinct_labels_are_all_guessed_once_in_so_many_orders() -> None:
    assert chance_of_right([Guess((1, 1, 1, 1, 0, 0, 0, 0, 0, 0), 4, even_chances(10))], 4) == pytest.approx(
        factorial(4) / 10**4
    )


def test_what_is_too_much_work_is_drawn_or_bounded_from_above(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    chances = random.dirichlet(np.ones(6))
    guess = Guess(np.bincount(random.integers(6, size=24), minlength=6).tolist(), 24, chances)
    exact = [chance_of_right([guess, guess], right) for right in (20, 30, 36, 48)]
    monkeypatch.setattr(label_evidence, "_EXACT", 0)
    other = [chance_of_right([guess, guess], right) for right in (20, 30, 36, 48)]
    assert other[:2] == pytest.approx(exact[:2], abs=0.02)
    assert all(bound >= p for bound, p in zip(other[2:], exact[2:], strict=True))
    assert other[3] < 1e-4


@pytest.mark.parametrize(("classes", "p"), [(10, 0.1), (100, 0.01)])
def test_one_right_label_is_as_good_as_the_number_of_classes(classes: int, p: float) -> None:
    assert chance_of_class(1, 1, 1, (1 / classes,)) == pytest.approx(p)


def test_the_least_favourable_chance_counts() -> None:
    # Between one tenth and nine tenths lies the half at which four of eight are likeliest.
    assert chance_of_class(4, 4, 8, (0.1, 0.9)) == pytest.approx(70 / 256)
    assert chance_of_class(4, 2, 8, (0.1, 0.9)) == pytest.approx((28 * 2 + 56 * 2 + 70) / 256)


def test_a_habit_is_what_is_named_elsewhere_and_excludes_nothing() -> None:
    chances = habit_chances([(3, 0), (5, 0)], 2)
    assert chances.tolist() == pytest.approx([8.5 / 9, 0.5 / 9])
    assert habit_chances([], 4).tolist() == [0.25] * 4
