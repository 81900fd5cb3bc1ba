"""Averages of encryptions: exact in the limit, with and without the sets being known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from encodings_support import fields, published
from leakgauge.attacks.encodings.algebra.whitening import Magnitudes, PlainPixels, Whitened
from leakgauge.attacks.encodings.clustering.averaging import AverageOfKnownSets, AverageOfNearest
from leakgauge.encodings import CrossDataset, Mixup
from leakgauge.errors import InvalidCase, MissingKnowledge
from leakgauge.protocol.encoding import EncodedSet, EncodingObservation

PRIVATE, PUBLIC, AUXILIARY = fields(10, seed=11), fields(400, seed=12), fields(800, seed=13)
SETS = torch.arange(10).repeat(60)


def correlations(estimates: torch.Tensor, originals: torch.Tensor) -> torch.Tensor:
    x, y = (value.flatten(1) - value.flatten(1).mean(dim=1, keepdim=True) for value in (estimates, originals))
    return (x * y).sum(dim=1) / (x.norm(dim=1) * y.norm(dim=1))


def test_with_balanced_coefficients_the_weighted_average_is_the_image():
    # x~_t = w_t x_i + (1 - w_t) m for every image: nothing but the image and the mean image.
    mean = PRIVATE.mean(dim=0)
    weights = torch.tensor([0.3, 0.5, 0.6]).double().repeat_interleave(10)
    images = weights[:, None, None, None] * (PRIVATE.repeat(3, 1, 1, 1) - mean) + mean
    labels = torch.zeros(30, 11).double()
    labels[torch.arange(30), torch.arange(10).repeat(3)] = weights
    observation = EncodingObservation(EncodedSet(images, labels), 4, 1, False)
    estimate = AverageOfKnownSets()(observation, sets=torch.arange(10).repeat(3)).inputs
    torch.testing.assert_close(estimate, PRIVATE)


def test_averages_of_mixup_correlate_with_their_image_and_with_no_other():
    observation, _ = published(Mixup(4, public=2), PRIVATE, PUBLIC, AUXILIARY, copies=60)
    estimates = AverageOfKnownSets()(observation, sets=SETS).inputs
    assert correlations(estimates, PRIVATE).min() > 0.8
    assert correlations(estimates, PRIVATE.roll(1, dims=0)).mean().abs() < 0.3


def test_subtracting_the_mean_of_all_encodings_and_weighting_each_bring_the_average_nearer():
    observation, _ = published(Mixup(4, public=2), PRIVATE, PUBLIC, AUXILIARY, copies=60)
    errors = [
        float((attack(observation, sets=SETS).inputs - PRIVATE).square().mean())
        for attack in (
            AverageOfKnownSets(weighted=False, contrast=False),
            AverageOfKnownSets(weighted=False),
            AverageOfKnownSets(),
        )
    ]
    assert errors[0] > errors[1] > errors[2]


def test_behind_a_mask_the_plain_average_is_grey():
    observation, _ = published(CrossDataset(4), PRIVATE, PUBLIC, AUXILIARY, copies=60)
    average = AverageOfKnownSets(weighted=False, contrast=False)(observation, sets=SETS).inputs
    # 60 fair signs of at most a half each.
    assert (average - 0.5).abs().mean() < 0.5 / 60**0.5
    assert correlations(average, PRIVATE).abs().mean() < 0.3


def test_known_sets_in_any_order_give_the_same_estimates():
    observation, _ = published(Mixup(4, public=2), PRIVATE, PUBLIC, AUXILIARY, copies=60)
    order = torch.randperm(600, generator=torch.Generator().manual_seed(0))
    encoded = EncodedSet(observation.encoded.images[order], observation.encoded.labels[order])
    shuffled = AverageOfKnownSets()(replace(observation, encoded=encoded), sets=SETS[order]).inputs
    torch.testing.assert_close(shuffled, AverageOfKnownSets()(observation, sets=SETS).inputs)


def test_the_nearest_encodings_share_an_image_more_often_than_others_do():
    observation, _ = published(Mixup(3, public=2), PRIVATE, PUBLIC, AUXILIARY, copies=20)
    queries, sets = torch.arange(50), torch.arange(10).repeat(20)
    nearest = AverageOfNearest(features=Whitened()).similar(observation, queries)
    assert nearest.shape == (50, 5)
    assert not bool((nearest == queries[:, None]).any())
    assert (sets[nearest] == sets[queries][:, None]).double().mean() > 0.4  # one in ten by chance


def test_an_encoding_and_its_nearest_average_to_something_nearer_the_image_than_the_encoding_alone():
    observation, _ = published(Mixup(3, public=2), PRIVATE, PUBLIC, AUXILIARY, copies=20)
    queries = torch.arange(50)
    estimates = AverageOfNearest()(observation, queries=queries).inputs
    originals = PRIVATE[queries % 10]
    alone = correlations(observation.encoded.images[:50], originals).mean()
    assert correlations(estimates, originals).mean() > alone + 0.05


def test_copies_of_the_query_do_not_crowd_it_into_its_own_neighbours():
    observation, _ = published(Mixup(3, public=2), PRIVATE, PUBLIC, AUXILIARY, copies=1)
    encoded = EncodedSet(observation.encoded.images.repeat(4, 1, 1, 1), observation.encoded.labels.repeat(4, 1))
    queries = torch.arange(40)
    nearest = AverageOfNearest(features=PlainPixels(), neighbours=2).similar(
        replace(observation, encoded=encoded), queries
    )
    assert not bool((nearest == queries[:, None]).any())
    assert bool((nearest % 10 == queries[:, None] % 10).all())


def test_neighbours_found_elsewhere_can_be_averaged():
    observation, _ = published(Mixup(3, public=2), PRIVATE, PUBLIC, None, copies=4)
    attack = AverageOfNearest(contrast=False, neighbours=1)
    estimate = attack(observation, queries=torch.tensor([0]), nearest=torch.tensor([[7]])).inputs
    torch.testing.assert_close(estimate[0], observation.encoded.images[[0, 7]].mean(dim=0))


def test_what_is_missing_or_makes_no_sense_is_named():
    observation, _ = published(Mixup(3, public=2), PRIVATE, PUBLIC, None, copies=4)
    with pytest.raises(InvalidCase, match="need the number of their image each"):
        AverageOfKnownSets()(observation, sets=torch.zeros(3, dtype=torch.long))
    with pytest.raises(MissingKnowledge, match="give the attacker `auxiliary` images"):
        AverageOfNearest(Magnitudes())(observation, queries=torch.tensor([0]))
    with pytest.raises(InvalidCase, match="at least 1"):
        AverageOfNearest(neighbours=0)


def test_the_largest_of_k_uniform_shares_is_about_two_in_k_plus_one():
    # The scale of the weak attacker: E max u_j = k / (k + 1) over E sum u_j = k / 2.
    for k in (2, 4, 6):
        shares = torch.rand(20_000, k, generator=torch.Generator().manual_seed(k))
        largest = (shares / shares.sum(dim=1, keepdim=True)).amax(dim=1).mean()
        assert float(largest) == pytest.approx(2 / (k + 1), rel=0.1)
