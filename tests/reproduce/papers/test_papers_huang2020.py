"""InstaHide: the numbers of the paper, and at full scale its training and its sizes."""

from __future__ import annotations

import pytest
import torch

from leakgauge.encodings import SeededKeys
from leakgauge.randomness import seeded
from leakgauge.reproduce import SCALES, TABLES, Row
from leakgauge.reproduce.papers.huang2020.accuracy import WORK, FixedShares
from leakgauge.reproduce.papers.huang2020.attacks import SIZES

TABLE2_AS_PRINTED = """
vanilla 94.8 99.5 77.9
DP-SGD 72.0 98.1
inside, k=4, in inference 91.4 98.2 73.2
inside, k=4 91.2 98.2 73.1
cross, k=4, in inference 90.3 98.1 72.8
cross, k=4 90.7 97.8 73.2
cross, k=6, in inference 89.6 97.4 72.1
cross, k=6 89.8 97.3 71.9
"""
"""CIFAR-10, MNIST and CIFAR-100, in percent."""

TABLE4_ALL_AS_PRINTED = """
0.49 0.54 0.54 0.61 0.58 0.61 0.59
0.53 0.49 0.49 0.65 0.56 0.61 0.74
0.54 0.55 0.55 0.61 0.68 0.69 0.58
0.49 0.49 0.49 0.48 0.40 0.70 0.70
0.51 0.50 0.50 0.60 0.72 0.66 0.50
0.44 0.52 0.52 0.66 0.69 0.52 0.60
0.45 0.48 0.48 0.62 0.52 0.64 0.67
0.46 0.50 0.50 0.75 0.69 0.63 0.73
0.53 0.53 0.53 0.60 0.67 0.54 0.59
0.44 0.37 0.38 0.66 0.65 0.67 0.65
"""
"""The columns `All`, one line for each of ten images."""


def rows(name: str) -> tuple[Row, ...]:
    return TABLES[f"huang2020/{name}"].rows


def test_rows_of_our_own_say_so() -> None:
    for name in ("table2", "figure3", "figure4", "figure7", "figure8", "table4"):
        for row in rows(name):
            assert (row.published is None) == row.label.endswith("(not in the paper)")


def test_table_2_is_as_printed() -> None:
    lines = [line for line in rows("table2") if line.published]
    columns = ("accuracy on MNIST", "accuracy on CIFAR-100")
    printed = [
        " ".join(
            [
                line.label,
                *(
                    f"{100 * one.mean:.1f}"
                    for one in (line.published, *map(line.also.get, columns))
                    if one and one.mean
                ),
            ]
        )
        for line in lines
    ]
    assert sorted(printed) == sorted(TABLE2_AS_PRINTED.strip().splitlines())


def test_figure_4_has_what_the_text_says_of_noise() -> None:
    lines = {line.label: line.published for line in rows("figure4")}
    assert lines["Laplace noise, alpha=0.1"].mean == 0.94  # type: ignore[union-attr]
    assert lines["Laplace noise, alpha=0.9"].mean == 0.10  # type: ignore[union-attr]
    assert "above 90 %" in lines["InstaHide, alpha=0.5"].source  # type: ignore[union-attr]


def test_figure_8_has_the_one_hit_rate_that_the_text_gives() -> None:
    (given,) = [line for line in rows("figure8") if line.published and line.published.mean is not None]
    assert given.published is not None
    assert given.published.mean == 0.05
    assert given.label == "InstaHide, random crops: learned similarity"


def test_table_4_is_the_mean_over_its_ten_images() -> None:
    printed = torch.tensor([[float(x) for x in line.split()] for line in TABLE4_ALL_AS_PRINTED.strip().splitlines()])
    ours = [line.published for line in rows("table4")]
    torch.testing.assert_close(torch.tensor([one.mean for one in ours if one]), printed.mean(dim=0), atol=1e-3, rtol=0)
    spreads = torch.tensor([one.deviation for one in ours if one])
    torch.testing.assert_close(spreads, printed.std(dim=0), atol=1e-3, rtol=0)


def test_shares_of_figure_4_are_fixed() -> None:
    mixing = FixedShares(alpha=0.3).draw(9, 0, keys=SeededKeys(seeded(0, "keys")))
    torch.testing.assert_close(mixing.coefficients, torch.tensor([0.7, 0.3], dtype=torch.float64).expand(9, 2))
    assert bool((mixing.indices[:, 0] != mixing.indices[:, 1]).all())
    assert mixing.signed


def test_shares_exchanged_are_the_same_pairs_seen_from_the_other_image() -> None:
    """Why rows of Figure 4 above a half are those below it: a permutation and its inverse are equally likely."""
    mixing = FixedShares(alpha=0.3).draw(9, 0, keys=SeededKeys(seeded(0, "keys")))
    swapped = mixing.indices.flip(1)
    assert torch.equal(swapped[:, 0].sort().values, torch.arange(9))
    by_alpha = {float(line.label.split("=")[1]): line.at("cpu") for line in rows("figure4") if "Insta" in line.label}
    assert by_alpha[0.1] == by_alpha[0.9]
    assert by_alpha[0.3] == by_alpha[0.7] != by_alpha[0.5]


def test_full_scale_has_the_papers_training_and_sizes() -> None:
    work, size = WORK["full"], SIZES["full"]
    training = work.recipe.training(50_000)
    assert (training.batch_size, training.learning_rate, training.steps) == (128, 0.1, 200 * 390)
    assert [work.recipe.schedule(epoch / 200) for epoch in (0, 99, 100, 149, 150)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01]
    )
    assert work.runs == 5
    assert (size.private, size.copies, size.queries, size.public) == (50, 50, 50, 10_000)


def test_at_cpu_scale_networks_train_for_a_minute_of_the_processor() -> None:
    assert set(WORK) == set(SIZES) | {"long"} == set(SCALES)
    assert SIZES["cpu"].network.clock == "cpu"
    assert SIZES["cpu"].network.seconds == 60
    assert WORK["cpu"].recipe.training(20_000).steps * WORK["cpu"].recipe.batch_size <= 80_000
