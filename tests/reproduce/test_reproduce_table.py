"""Numbers of a table: means over images, spreads over updates, images or seeds, and what was not measured."""

from __future__ import annotations

import math

import pytest

from leakgauge.reproduce import Measured


def test_the_mean_is_over_images_and_the_spread_over_updates() -> None:
    scores = [[10.0, 30.0], [20.0, 40.0]]
    measured = Measured.of(scores, best=3)
    assert (measured.mean, measured.updates, measured.images, measured.best) == (25.0, 2, 4, 30.0)
    assert measured.deviation == pytest.approx(math.sqrt(50))
    assert measured.standard_error == pytest.approx(5.0)


def test_what_was_not_measured_is_none_and_not_zero() -> None:
    assert Measured.of([[math.nan]], best=2) == Measured(None, None, None, 0, 0, None)
    assert Measured.of([[12.0]]) == Measured(12.0, None, None, 1, 1)


def test_over_seeds_every_seed_counts_once() -> None:
    measured = Measured.over_seeds([0.25, math.nan, 0.75], images=10)
    assert (measured.mean, measured.updates, measured.images) == (0.5, 2, 20)
    assert measured.deviation == pytest.approx(math.sqrt(0.125))
