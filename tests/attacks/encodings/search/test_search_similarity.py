"""Similarity search: SSIM as everybody computes it, and a score that is learned."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import structural_similarity

from encodings_support import fields, found, instahide, mixup, published
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.encodings.algebra.whitening import AsPublished
from leakgauge.attacks.encodings.search.public_search import PublicSearch
from leakgauge.attacks.encodings.search.similarity import SimilarityTraining, StructuralSearch
from leakgauge.encodings.crops import Cropping
from leakgauge.errors import InvalidCase, MissingKnowledge
from leakgauge.metrics.alignment import Comparison
from leakgauge.metrics.intervals import beyond_chance
from leakgauge.metrics.ssim import SSIM
from leakgauge.randomness import seeded
from leakgauge.structural_similarity import similarity, windows

PRIVATE, PUBLIC, AUXILIARY = (fields(count, seed=seed) for count, seed in ((40, 21), (100, 22), (600, 23)))
SMALL = SimilarityTraining(
    widths=(12, 16, 16), grid=8, view=AsPublished(), budget=Budget(steps=50), batch_size=32, learning_rate=1e-2
)


@settings(deadline=None, max_examples=20)
@given(height=st.integers(3, 16), width=st.integers(3, 16), channels=st.integers(1, 3), seed=st.integers(0, 99))
def test_structural_similarity_is_that_of_the_metric(height, width, channels, seed):
    one, other = torch.rand(2, 2, channels, height, width, generator=seeded(seed), dtype=torch.float64)
    expected = SSIM()(Comparison(one, other, None, torch.zeros(2), None))
    torch.testing.assert_close(similarity(windows(one), windows(other)), expected)


def test_structural_similarity_is_that_of_skimage_in_single_precision():
    one, other = fields(2, 32, 3).float()
    expected = structural_similarity(
        one.numpy(), other.numpy(), data_range=1.0, channel_axis=0, gaussian_weights=True, use_sample_covariance=False
    )
    assert float(similarity(windows(one[None]), windows(other[None]))) == pytest.approx(expected, abs=1e-4)


def test_one_image_is_compared_with_many():
    known, query = windows(PUBLIC), windows(PUBLIC[3:4])
    scores = similarity(known, query)
    assert int(scores.argmax()) == 3
    assert float(scores[3]) == pytest.approx(1.0)
    torch.testing.assert_close(similarity(query, known.part(10, 20)), scores[10:20])


def test_structural_search_finds_the_larger_part_of_a_mixture():
    observation, truth = published(mixup(2), PRIVATE, PUBLIC, AUXILIARY)
    ranking = StructuralSearch(AsPublished(), most=5)(observation, generator=seeded(0))
    hits = round(found(ranking.indices, truth, 5) * len(truth))
    assert beyond_chance(hits, len(truth), 0.05) < 1e-6
    assert bool((ranking.scores.diff(dim=1) <= 0).all())


def test_structural_search_of_other_images_finds_by_chance():
    observation, truth = published(instahide(2), PRIVATE, PUBLIC, AUXILIARY)
    ranking = StructuralSearch(most=5)(observation, generator=seeded(0))
    hits = round(found(ranking.indices, truth.roll(1, dims=0), 5) * len(truth))
    assert beyond_chance(hits, len(truth), 0.05) > 1e-3


def test_a_learned_score_ranks_images_of_a_mixture_above_others():
    learned = SMALL(AUXILIARY.float(), 2, generator=seeded(0))
    observation, truth = published(mixup(2), PRIVATE.float(), PUBLIC.float(), None)
    indices = PublicSearch(learned, most=5)(observation, generator=seeded(0)).indices
    assert beyond_chance(round(found(indices, truth, 5) * len(truth)), len(truth), 0.05) < 1e-9
    others = truth.roll(1, dims=0)
    assert beyond_chance(round(found(indices, others, 5) * len(truth)), len(truth), 0.05) > 1e-3


def test_a_score_learned_on_crops_finds_cropped_images_from_whole_ones():
    cropping = Cropping(margin=2)
    training = replace(SMALL, cropping=cropping, grid=2, budget=Budget(steps=80))
    learned = training(AUXILIARY.float(), 2, generator=seeded(0))
    cropped = cropping(PUBLIC, generator=seeded(1)).float()
    observation, truth = published(mixup(2), PRIVATE.float(), cropped, None)
    whole = replace(observation, public=PUBLIC.float())
    indices = PublicSearch(learned, most=10)(whole, generator=seeded(0)).indices
    assert beyond_chance(round(found(indices, truth, 10) * len(truth)), len(truth), 0.1) < 1e-4


def test_rows_of_a_learned_score_have_length_one():
    learned = replace(SMALL, budget=Budget(steps=1))(AUXILIARY.float(), 2, generator=seeded(0))
    sides = learned.fit(None, generator=seeded(0))
    torch.testing.assert_close(sides.images(PUBLIC.float()).norm(dim=1), torch.ones(100))
    assert learned.steps == 1


def test_what_is_missing_or_makes_no_sense_is_named():
    observation, _ = published(mixup(2), PRIVATE, PUBLIC, None)
    with pytest.raises(MissingKnowledge, match="give the attacker `public` images"):
        StructuralSearch()(replace(observation, public=None), generator=seeded(0))
    with pytest.raises(InvalidCase, match="a batch size of 2"):
        SimilarityTraining(batch_size=1)
    with pytest.raises(InvalidCase, match="at least 3 x 3 pixels"):
        windows(torch.rand(1, 1, 2, 5))
