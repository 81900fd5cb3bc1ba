"""The studies of attacks on encodings: which targets they measure, on which images, and what a scale changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from leakgauge.attacks.encodings.clustering.attack import Clustering
from leakgauge.attacks.encodings.clustering.published import PublishedRecipe
from leakgauge.data import Dataset
from leakgauge.errors import InvalidCase
from leakgauge.reproduce import SCALES, STUDIES
from leakgauge.reproduce.measures.restoring import Trial
from leakgauge.reproduce.papers.instahide import SIZES, Restoring, Searching, pools_of
from leakgauge.reproduce.study import Bench
from leakgauge.reproduce.victims import embedded


@pytest.fixture(scope="module")
def photographs() -> Dataset:
    return embedded()


def trials(name: str) -> dict[str, Trial]:
    """Every trial of a study, by its label."""
    found: dict[str, Trial] = {}
    for part in STUDIES[name].parts:
        assert isinstance(part.measure, Restoring)
        found |= part.measure.trials
    return found


def test_private_public_and_own_images_are_disjoint(photographs: Dataset, tmp_path: Path) -> None:
    pools = pools_of(Bench("smoke", photographs, 0, tmp_path))
    sets = [
        {image.numpy().tobytes() for image in part} for part in (pools.private.inputs, pools.public, pools.auxiliary)
    ]
    assert [len(pools.public), len(pools.auxiliary)] == [110, 200]
    for one, first in enumerate(sets):
        for second in sets[one + 1 :]:
            assert not first & second


def test_too_few_training_images_are_refused(photographs: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InvalidCase, match="20000 training images, but there are 784"):
        pools_of(Bench("cpu", photographs, 0, tmp_path))


def test_at_cpu_scale_searches_and_decoys_are_among_ten_thousand_for_minutes() -> None:
    assert set(SIZES) == set(SCALES)
    size = SIZES["cpu"]
    assert (size.public, size.auxiliary, size.queries, size.seeds) == (10_000, 10_000, 200, 3)
    assert (size.training.budget.seconds, size.training.budget.clock) == (92, "cpu")


def test_a_smoke_trial_is_the_same_question_about_fewer_images() -> None:
    size, asked = SIZES["smoke"], Trial(private=30, copies=30, knows="counts", deployment="8 bits")
    small = size.of(asked)
    assert (small.private, small.copies, small.attack) == (6, 4, Clustering(rounds=1))
    assert (small.scheme, small.knows, small.deployment) == (asked.scheme, "counts", "8 bits")
    assert size.of(Trial(attack=PublishedRecipe())).attack == PublishedRecipe(steps=2)
    assert SIZES["cpu"].of(asked) == asked


def test_clustering_is_tried_with_less_and_less_knowledge_and_on_more_and_more_images() -> None:
    rows = trials("instahide/clustering")
    asked = {(one.private, one.copies, one.knows) for one in rows.values() if one.deployment == "as encrypted"}
    assert {(30, 30, told) for told in ("counts", "number", "labels", "mixing")} <= asked
    assert {(50, 30, "labels"), (100, 30, "labels"), (200, 20, "labels")} <= asked
    assert {one.deployment for one in rows.values()} == {
        "as encrypted",
        "8 bits",
        "private images mirrored at random",
        "private images cropped and mirrored at random",
    }
    assert sum(isinstance(one.attack, PublishedRecipe) for one in rows.values()) == 1
    assert {one.scheme.k for one in rows.values()} == {4}


def test_amid_public_images_two_are_private_and_crops_are_tried() -> None:
    rows = trials("instahide/cross")
    assert {(one.scheme.k, one.scheme.private_per_encoding, one.private, one.copies) for one in rows.values()} == {
        (4, 2, 30, 50),
        (6, 2, 30, 50),
    }
    moved = [one.scheme.k for one in rows.values() if one.deployment.startswith("public images cropped")]
    assert moved == [4, 6]


def test_searches_have_the_published_statistics_beside_ours_and_both_sides_of_demasking() -> None:
    searches = {part.name: part.measure for part in STUDIES["instahide/search"].parts}
    for name, search in searches.items():
        assert isinstance(search, Searching)
        assert search.scheme.private_per_encoding == 1
        assert ("crops" in name) == (search.crops is not None)
    plain, masked = searches["Mixup, k=4"], searches["InstaHide, k=6"]
    assert {"inner product, published", "inner product, whitened", "pursuit, whitened"} <= set(plain.labels)  # type: ignore[attr-defined]
    wanted = {"fourth moment, published", "fourth moment, whitened", "not demasked, whitened", "demasked, whitened"}
    assert wanted <= set(masked.labels)  # type: ignore[attr-defined]
    moved = searches["InstaHide, k=4, random crops"]
    assert "every alignment, Laplacian" in moved.labels  # type: ignore[attr-defined]


def test_a_row_says_what_the_attacker_was_told_and_its_null_is_no_recovery(
    photographs: Dataset, tmp_path: Path
) -> None:
    trial = Trial(private=6, copies=4, knows="mixing")
    (found,) = Restoring({"row": trial})(Bench("smoke", photographs, 0, tmp_path)).values()
    assert found.setting["private_images"] == 6
    assert "mixing: given, an upper bound on leakage" in found.given
    assert found.ours["identification"].mean == 1
    assert (found.null["psnr"].mean or 0) < (found.ours["psnr"].mean or 0) - 5
    assert found.null["recall"].mean is not None
    assert found.originals is not None
    assert torch.isfinite(found.originals).all()
