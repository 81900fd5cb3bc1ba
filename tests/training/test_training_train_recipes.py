from __future__ import annotations

import pytest

from leakgauge.errors import InvalidCase
from leakgauge.schedules import ConstantRate, RegularDecay
from leakgauge.training import RECIPES, Recipe, Training, TrainingPlan


def test_the_full_scale_is_the_papers() -> None:
    # Huang et al. 2021, App. A.1: 200 epochs, batches of 128, momentum 0.9, 0.1 falling tenfold every 50 epochs.
    recipe = RECIPES["huang2021"]
    assert recipe == Recipe(
        batch_size=128, learning_rate=0.1, schedule=RegularDecay(0.25, 0.1), epochs=200, momentum=0.9
    )
    assert recipe.training(50_000) == Training(200 * 390, 128, 0.1, 0.9)


def test_what_is_given_replaces_what_the_recipe_says() -> None:
    assert TrainingPlan().chosen_recipe() == RECIPES["short"]
    assert TrainingPlan(epochs=2, batch_size=8).chosen_recipe().training(33).steps == 2 * 4
    assert TrainingPlan(epochs=3, batch_size=50).chosen_recipe().training(33).steps == 3
    changed = TrainingPlan(steps=7, learning_rate=0.5, schedule="constant").chosen_recipe()
    assert (changed.steps, changed.learning_rate, changed.schedule) == (7, 0.5, ConstantRate())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"steps": 1, "epochs": 1}, "one of the two"),
        ({"steps": 0}, "at least one step"),
        ({"batch_size": 0}, "one image per batch"),
        ({"learning_rate": 0.0}, "learning rate"),
        ({"learning_rate": float("inf")}, "learning rate"),
    ],
)
def test_a_training_that_makes_no_sense_is_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidCase, match=words):
        TrainingPlan(**wrong)  # type: ignore[arg-type]


def test_utility_needs_training_data() -> None:
    with pytest.raises(InvalidCase, match="no training data"):
        RECIPES["short"].training(0)
