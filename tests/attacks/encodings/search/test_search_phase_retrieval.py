"""Signs and public images found in turn, from covariances alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from encodings_support import fields, found, instahide, published
from leakgauge.attacks.encodings.algebra.whitening import centred, whitener
from leakgauge.attacks.encodings.search.phase_retrieval import GaussianImages, PhaseRetrieval
from leakgauge.attacks.encodings.search.public_search import PublicSearch
from leakgauge.attacks.encodings.search.statistics import whitened_squares
from leakgauge.encodings import InsideDataset, SeededKeys, encrypt
from leakgauge.errors import InvalidCase, MissingKnowledge
from leakgauge.metrics.intervals import beyond_chance
from leakgauge.protocol.encoding import EncodingObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SIDE = 12
PRIVATE, PUBLIC, AUXILIARY = (fields(n, SIDE, seed=seed) for n, seed in ((60, 41), (300, 42), (2000, 43)))
ATTACK = PhaseRetrieval(whitened_squares(encodings=2000))


@pytest.fixture(scope="module")
def attacked():
    observation, truth = published(instahide(3), PRIVATE, PUBLIC, AUXILIARY)
    return observation, truth, ATTACK(observation, generator=seeded(0))


def test_the_mean_field_of_independent_pixels_is_the_posterior_mean():
    # C = I: |z| tanh(|z| m / v) pixel by pixel, whatever the steps.
    family = GaussianImages(torch.zeros(6), torch.ones(6), torch.eye(6))
    magnitudes, expected = torch.rand(4, 6, generator=seeded(0)), torch.randn(4, 6, generator=seeded(1))
    pixels = family.guess_signs(magnitudes, expected, torch.full((4, 1), 0.5), steps=7, trust=1.0)
    torch.testing.assert_close(pixels, magnitudes * torch.tanh(magnitudes * expected / 0.5))


def test_neighbours_tell_the_sign_of_a_pixel_that_nothing_else_tells():
    # Two pixels with correlation .9: one is expected to be bright, of the other nothing is known.
    covariance = torch.tensor([[1.0, 0.9], [0.9, 1.0]])
    family = GaussianImages(torch.zeros(2), torch.ones(2), torch.linalg.inv(covariance))
    magnitudes = torch.tensor([[1.0, 1.0]])
    pixels = family.guess_signs(magnitudes, torch.tensor([[2.0, 0.0]]), torch.ones(1, 1), steps=0, trust=1.0)
    assert float(pixels[0, 1]) == 0.0
    # Given the first, the second is N(0 + .9 (1 - 2), .19): below its mean's shadow, so dark.
    pixels = family.guess_signs(magnitudes, torch.tensor([[2.0, 0.0]]), torch.ones(1, 1), steps=30, trust=1.0)
    assert float(pixels[0, 1]) < -0.9


def test_more_public_images_are_found_than_by_squares_alone(attacked):
    observation, truth, result = attacked
    squares = PublicSearch(whitened_squares(encodings=2000), most=2)(observation, generator=seeded(0))
    assert found(result.indices, truth, 2) > found(squares.indices, truth, 2) + 0.05


def test_most_signs_are_right_without_a_network(attacked):
    observation, _, result = attacked
    batch = Batch(PRIVATE, torch.arange(60) % 5)
    encoded, secret = encrypt(instahide(3), batch, classes=5, public=PUBLIC, keys=SeededKeys(seeded(0, "keys")))
    assert torch.equal(encoded.images, observation.encoded.images)
    mixed = torch.where(secret.flipped, 1 - encoded.images, encoded.images)
    right = ((result.unmasked > 0.5) == (mixed > 0.5)).double().flatten(1).mean(dim=1)
    assert float(right.mean()) > 0.75
    assert beyond_chance(int((right > 0.5).sum()), 60, 0.5) < 1e-6


def test_what_is_left_correlates_with_the_private_image_and_not_with_another(attacked):
    _, _, result = attacked

    def mean_correlation(originals):
        rows = [value.flatten(1) - value.flatten(1).mean(dim=1, keepdim=True) for value in (result.private, originals)]
        return float(torch.nn.functional.cosine_similarity(*rows).mean())

    assert mean_correlation(PRIVATE) > 0.4
    assert abs(mean_correlation(PRIVATE.roll(1, dims=0))) < 0.2


def test_where_the_public_set_is_another_nothing_is_found(attacked):
    observation, truth, _ = attacked
    stranger = replace(observation, public=fields(300, SIDE, seed=44))
    result = ATTACK(stranger, generator=seeded(0))
    hits = round(found(result.indices, truth, 2) * truth.numel())
    assert beyond_chance(hits, truth.numel(), 2 / 300) > 1e-3


def test_the_mask_makes_no_difference(attacked):
    observation, _, result = attacked
    images = observation.encoded.images
    flips = torch.rand(images.shape, generator=seeded(9)) < 0.5
    other = replace(observation, encoded=replace(observation.encoded, images=torch.where(flips, 1 - images, images)))
    again = ATTACK(other, generator=seeded(0))
    assert torch.equal(again.indices, result.indices)
    torch.testing.assert_close(again.unmasked, result.unmasked, atol=1e-6, rtol=0)


def test_magnitudes_bound_what_is_unmasked_and_shares_leave_room_for_the_private_image(attacked):
    observation, _, result = attacked
    magnitudes = centred(observation.encoded.images).abs()
    assert bool((centred(result.unmasked).abs() <= magnitudes + 1e-9).all())
    assert bool((result.coefficients > 0).all())
    assert float(result.coefficients.sum(dim=1).max()) <= 0.9 + 1e-9
    assert all(len(set(row)) == 2 for row in result.indices.tolist())


def test_the_family_of_auxiliary_images_has_the_inverse_of_their_covariance():
    rows = centred(AUXILIARY).flatten(1)
    family = GaussianImages.of(whitener(rows, 0.0), AUXILIARY)
    covariance = torch.cov(rows.mT, correction=0)
    torch.testing.assert_close(family.precision @ covariance, torch.eye(SIDE**2).double(), atol=1e-6, rtol=0)


def test_what_is_missing_or_makes_no_sense_is_named(attacked):
    observation, _, _ = attacked
    with pytest.raises(MissingKnowledge, match="give the attacker `public` images"):
        ATTACK(replace(observation, public=None), generator=seeded(0))
    with pytest.raises(InvalidCase, match="sweeps >= 1"):
        PhaseRetrieval(sweeps=0)
    batch = Batch(PRIVATE, torch.arange(60) % 5)
    encoded, _ = encrypt(InsideDataset(3), batch, classes=5, keys=SeededKeys(seeded(0)))
    inside = EncodingObservation(encoded, 3, 3, public=PUBLIC, auxiliary=AUXILIARY)
    with pytest.raises(InvalidCase, match="no public images in these encodings"):
        ATTACK(inside, generator=seeded(0))
