"""Attacks on encodings: which targets they are measured on, on which images, and what a scale changes."""

from __future__ import annotations

from leakgauge.attacks.encodings.clustering.attack import Clustering
from leakgauge.attacks.encodings.clustering.published import PublishedRecipe
from leakgauge.reproduce import SCALES, TABLES
from leakgauge.reproduce.measures.restoring import Trial
from leakgauge.reproduce.papers.instahide import SIZES


def trials(name: str) -> list[Trial]:
    return [measure.trial for measure in TABLES[f"instahide/{name}"].measures("cpu").values()]


def test_at_cpu_scale_searches_and_decoys_are_among_ten_thousand_for_minutes() -> None:
    assert set(SIZES) | {"long"} == set(SCALES)
    size = SIZES["cpu"]
    assert (size.public, size.auxiliary, size.queries, size.seeds) == (10_000, 10_000, 200, 3)
    assert (size.training.budget.seconds, size.training.budget.clock) == (92, "cpu")


def test_a_smoke_trial_is_the_same_question_about_fewer_images() -> None:
    size, asked = SIZES["smoke"], Trial(private=30, copies=30, knows="counts", deployment="8 bits")
    small = size.shrink(asked)
    assert (small.private, small.copies, small.attack) == (6, 4, Clustering(rounds=1))
    assert (small.scheme, small.knows, small.deployment) == (asked.scheme, "counts", "8 bits")
    assert size.shrink(Trial(attack=PublishedRecipe())).attack == PublishedRecipe(steps=2)
    assert SIZES["cpu"].shrink(asked) == asked


def test_clustering_is_tried_with_less_and_less_knowledge_and_on_more_and_more_images() -> None:
    rows = trials("clustering")
    asked = {(one.private, one.copies, one.knows) for one in rows if one.deployment == "as encrypted"}
    assert {(30, 30, told) for told in ("counts", "number", "labels", "mixing")} <= asked
    assert {(50, 30, "labels"), (100, 30, "labels"), (200, 20, "labels")} <= asked
    assert {one.deployment for one in rows} == {
        "as encrypted",
        "8 bits",
        "private images mirrored at random",
        "private images cropped and mirrored at random",
    }
    assert [one.knows for one in rows if isinstance(one.attack, PublishedRecipe)] == ["counts", "mixing"]
    assert {one.scheme.k for one in rows} == {4}
    seeds = [measure.seeds for measure in TABLES["instahide/clustering"].measures("cpu").values()]
    assert seeds == [3] * 9 + [1] * 5


def test_amid_public_images_two_are_private_and_crops_are_tried() -> None:
    rows = trials("cross")
    assert {(one.scheme.k, one.scheme.private_per_encoding, one.private, one.copies) for one in rows} == {
        (4, 2, 30, 50),
        (6, 2, 30, 50),
    }
    assert [one.scheme.k for one in rows if one.deployment.startswith("public images cropped")] == [4, 6]


def test_searches_have_the_published_statistics_beside_ours_and_both_sides_of_demasking() -> None:
    table = TABLES["instahide/search"]
    for label, search in table.measures("cpu").items():
        assert search.scheme.private_per_encoding == 1
        assert ("crops" in label) == (search.crops is not None)
        assert search.seeds == (1 if search.crops else 3)
    attacks = {row.label for row in table.rows}
    for wanted in (
        "Mixup, k=4: inner product, published",
        "Mixup, k=4: pursuit, whitened",
        "InstaHide, k=6: fourth moment, published",
        "InstaHide, k=6: not demasked, whitened",
        "InstaHide, k=6: demasked, whitened",
        "InstaHide, k=4, random crops: every alignment, Laplacian",
    ):
        assert wanted in attacks
