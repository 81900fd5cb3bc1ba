"""The expected scores of labels that are guessed."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.errors import InvalidCase
from leakgauge.metrics import Comparison, LabelCounts, LabelExistence, LabelRecall, expected_guess

LABEL_METRICS = (LabelRecall(), LabelExistence(), LabelCounts())
PRIORS = {"uniform": None, "skewed": [0.5, 0.3, 0.2], "certain": [1.0, 0.0, 0.0]}


def scores(true: list[int], guessed: list[int], num_classes: int) -> dict[str, float]:
    """The metrics themselves, of one guess."""
    images = torch.zeros(len(true), 1, 1, 1)
    comparison = Comparison(images, images, None, torch.tensor(true), torch.tensor(guessed), num_classes=num_classes)
    return {metric.name: float(metric(comparison).mean()) for metric in LABEL_METRICS}


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("true", [[0], [1, 1, 1], [0, 1, 2], [2, 2, 0, 2]], ids=str)
def test_the_guess_is_the_mean_over_all_guesses_there_are(true: list[int], prior: list[float] | None) -> None:
    chances = prior or [1 / 3] * 3
    expected = dict.fromkeys((metric.name for metric in LABEL_METRICS), 0.0)
    for guessed in product(range(3), repeat=len(true)):
        weight = math.prod(chances[one] for one in guessed)
        for name, score in scores(true, list(guessed), 3).items():
            expected[name] += weight * score
    assert expected_guess([true.count(one) for one in range(3)], prior) == pytest.approx(expected, abs=1e-12)


def test_the_guess_is_what_a_simulation_of_many_guesses_gives() -> None:
    """Ten thousand draws of 24 labels over 40 classes, with counts from 0 to 9; six standard errors of the mean."""
    counts = np.array([9, 5, 4, 3, 2, 1] + [0] * 34)
    draws = np.random.default_rng(0).multinomial(24, [1 / 40] * 40, size=10_000)
    simulated = {
        "label_recall": np.minimum(draws, counts).sum(axis=1) / 24,
        "label_existence": ((draws > 0) == (counts > 0)).mean(axis=1),
        "label_counts": (draws == counts).mean(axis=1),
    }
    for name, guess in expected_guess(counts.tolist()).items():
        assert abs(guess - simulated[name].mean()) < 6 * simulated[name].std() / 100, name


@given(counts=st.lists(st.integers(0, 30), min_size=1, max_size=8).filter(any))
@settings(max_examples=50)
def test_a_guess_is_a_share_and_recall_is_that_of_the_commonest_class_at_least(counts: list[int]) -> None:
    guess = expected_guess(counts)
    assert all(-1e-12 <= share <= 1 + 1e-12 for share in guess.values())
    assert guess["label_counts"] <= guess["label_existence"] + 1e-12
    # min(n, X) >= X n / K for X <= K, so that the expectation is n / C at least.
    assert guess["label_recall"] >= 1 / len(counts) * sum(n * n for n in counts) / sum(counts) ** 2 - 1e-12


def test_of_one_example_the_guess_is_one_in_so_many() -> None:
    assert expected_guess([0, 1, 0, 0, 0])["label_recall"] == pytest.approx(0.2)
    assert expected_guess([0, 1, 0, 0, 0])["label_counts"] == pytest.approx(0.2 + 0.8 * 0.6)


def test_a_guess_over_thousands_of_classes_and_examples_is_finite() -> None:
    guess = expected_guess([4096, *([0] * 9_998), 1])
    assert all(math.isfinite(share) for share in guess.values())


def test_of_no_example_there_is_no_guess() -> None:
    assert all(math.isnan(share) for share in expected_guess([0, 0]).values())


@pytest.mark.parametrize("prior", [[1.0], [0.7, 0.7], [1.5, -0.5], [math.nan, 1.0]], ids=str)
def test_a_prior_that_is_no_distribution_over_the_classes_is_refused(prior: list[float]) -> None:
    with pytest.raises(InvalidCase, match=r"prior over 2 classes.*sum 1"):
        expected_guess([1, 1], prior)
