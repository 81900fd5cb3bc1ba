"""Whether a row is above its null, whether it reaches what was published, and what it has other than the paper."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

import pytest

from leakgauge.attacks.recipes import inverting_gradients
from leakgauge.models import ConvNet, ResNet
from leakgauge.reproduce import TABLES, Setting
from leakgauge.reproduce.standing import at_null, differences, standing


def scored(mean: float | None, error: float | None = None) -> dict[str, Any]:
    return {"mean": mean, "deviation": error, "standard_error": error}


def told(mean: float | None, deviation: float | None = None, spread: str = "standard deviation") -> dict[str, Any]:
    return {"mean": mean, "deviation": deviation, "spread": spread}


@pytest.mark.parametrize(
    ("metric", "ours", "null", "expected"),
    [
        ("psnr", scored(20.0, 1.0), scored(10.0), False),
        ("psnr", scored(11.9, 1.0), scored(10.0), True),
        ("psnr", scored(12.9, 1.0), scored(10.0, 1.1), True),
        ("psnr", scored(10.1), scored(10.0), False),
        ("psnr", scored(10.0), scored(10.0), True),
        ("lpips_vgg", scored(0.4, 0.01), scored(0.6), False),
        ("lpips_vgg", scored(0.7, 0.01), scored(0.6), True),
        ("p_all", scored(0.5, 0.01), scored(0.5), False),
        ("psnr", scored(None), scored(None), False),
    ],
)
def test_a_row_is_above_its_null_by_two_standard_errors(metric: str, ours: Any, null: Any, expected: bool) -> None:
    assert at_null({"label": "a row", "ours": {metric: ours}, "null": {metric: null}}, metric) is expected


def told_apart(ours: list[float], nulls: list[float], models: int = 1) -> dict[str, Any]:
    """A row of a result file: scores of victims and of their nulls, in order."""
    row: dict[str, Any] = {"models": models, "published": None, "also_published": {}}
    for side, listed, scores in (("ours", "updates", ours), ("null", "nulls", nulls)):
        error = stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else None
        row[side] = {"psnr": scored(fmean(scores), error)}
        row[listed] = [{"scores": {"psnr": [score]}} for score in scores]
    return row


def test_victims_that_differ_are_compared_each_with_its_own_null() -> None:
    victims = [18.0, 12.0, 20.0, 15.0, 7.0]
    beyond = told_apart(victims, [score - gain for score, gain in zip(victims, (3.0, 2.0, 4.0, 3.0, 2.0), strict=True)])
    assert not at_null(beyond, "psnr")
    assert standing(beyond, "psnr", "psnr") == "above its null"
    either = told_apart(victims, [score - gain for score, gain in zip(victims, (3.0, -2.0, 4.0, -3.0, 0), strict=True)])
    assert at_null(either, "psnr")


def test_the_images_of_a_single_update_are_compared_each_with_its_null() -> None:
    def batch(gains: list[float]) -> dict[str, Any]:
        row = told_apart([fmean(gains) + 10.0], [10.0])
        row["updates"], row["nulls"] = (
            [{"scores": {"psnr": [10.0 + gain for gain in own]}}] for own in (gains, [0.0] * len(gains))
        )
        return row

    assert not at_null(batch([2.0, 3.0, 2.0, 4.0, 3.0]), "psnr")
    assert at_null(batch([2.0, -3.0, 2.0, -4.0, 3.1]), "psnr")


@pytest.mark.parametrize("updates", [1, 5])
def test_a_score_of_a_whole_update_is_compared_like_those_of_images(updates: int) -> None:
    row = told_apart([0.0] * (updates - 1) + [0.5], [0.0] * updates)
    for side in ("updates", "nulls"):
        row[side] = [{"scores": {"psnr": one["scores"]["psnr"][0]}} for one in row[side]]
    assert at_null(row, "psnr") is (updates == 5)
    for missing in (None, [None]):
        row["nulls"][0]["scores"]["psnr"] = missing
        assert at_null(row, "psnr") is (updates == 5)


def test_fewer_than_five_pairs_or_several_models_are_compared_as_two_samples() -> None:
    victims, nulls = [18.0, 12.0, 20.0, 7.0], [15.0, 10.0, 16.0, 5.0]
    assert at_null(told_apart(victims, nulls), "psnr")
    assert at_null(told_apart([*victims, 12.0], [*nulls, 10.0], models=2), "psnr")


@pytest.mark.parametrize(
    ("metric", "ours", "null", "published", "expected"),
    [
        ("psnr", scored(17.0, 1.0), scored(10.0), told(19.83, 2.96), "reached"),
        ("psnr", scored(60.0, 1.0), scored(10.0), told(19.83, 2.96), "reached"),
        ("psnr", scored(16.0, 1.0), scored(10.0), told(19.83, 2.96), "short"),
        ("psnr", scored(11.0, 1.0), scored(10.0), told(19.83, 2.96), "not reached"),
        ("psnr", scored(9.0, 1.0), scored(10.0), told(6.9, 2.8), "at its null, as published"),
        ("psnr", scored(13.0, 3.0), scored(10.0), told(15.0, 0.7, "standard error"), "not reached"),
        ("psnr", scored(13.0, 3.0), scored(10.0), told(15.0, 3.4), "not reached"),
        ("psnr", scored(13.0, 3.0), scored(10.0), told(13.0, 3.4), "at its null, as published"),
        ("psnr", scored(13.0, 3.0), scored(10.0, 2.0), told(15.0), "not reached"),
        ("psnr", scored(11.0, 1.0), scored(10.0), None, "not reached"),
        ("psnr", scored(16.0, 1.0), scored(10.0), None, "above its null"),
        ("psnr", scored(16.0, 1.0), scored(10.0), told(None), "above its null"),
        ("psnr", scored(19.0, 0.5), scored(10.0), told(20.12, 1.02, "standard error"), "reached"),
        ("psnr", scored(17.0, 0.5), scored(10.0), told(20.12, 1.02, "standard error"), "short"),
        ("accuracy", scored(0.88, 0.01), scored(0.1), told(0.89), "reached"),
        ("accuracy", scored(0.80, 0.01), scored(0.1), told(0.89), "short"),
        ("lpips_vgg", scored(0.45, 0.01), scored(0.7), told(0.41, 0.05), "reached"),
        ("lpips_vgg", scored(0.60, 0.01), scored(0.7), told(0.41, 0.05), "short"),
        ("psnr", scored(None), scored(10.0), told(20.0, 1.0), "not compared"),
        ("psnr", scored(20.0), scored(None), told(20.0, 1.0), "not compared"),
        ("p_all", scored(0.5), scored(0.5), told(0.5), "not compared"),
    ],
)
def test_a_row_reaches_the_published_spread_or_says_that_it_does_not(
    metric: str, ours: Any, null: Any, published: Any, expected: str
) -> None:
    row = {"published": published, "also_published": {}, "ours": {metric: ours}, "null": {metric: null}}
    assert standing(row, metric, metric) == expected
    aside = {**row, "published": None, "also_published": {} if published is None else {metric: published}}
    assert standing(aside, metric, "another") == expected


def test_what_differs_is_named_part_by_part() -> None:
    here = Setting(ResNet(20, 16), inverting_gradients(steps=4_800), updates=5)
    paper = Setting(ResNet(20, 64), inverting_gradients(steps=24_000), updates=100)
    assert list(differences(here, paper)) == [
        "model.base_width 16 for 64",
        "attack.budget.steps 4800 for 24000",
        "updates 5 for 100",
    ]
    other = Setting(ConvNet(16), inverting_gradients(steps=4_800), updates=5)
    assert list(differences(other, here)) == [f"model {ConvNet(16)!r} for {ResNet(20, 16)!r}"]


def test_the_paper_differs_from_itself_in_nothing() -> None:
    for table in TABLES.values():
        for row in table.rows:
            assert list(differences(row.at("full"), row.at("full"))) == []
