"""The clustering attack end to end on small smooth images, and its study."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from encodings_support import fields
from leakgauge.attacks.encodings.algebra.whitening import HighPass
from leakgauge.attacks.encodings.clustering.assignment import LabelSimplices
from leakgauge.attacks.encodings.clustering.attack import Clustering, private_classes
from leakgauge.attacks.encodings.clustering.public_noise import likelier, public_variances
from leakgauge.attacks.encodings.clustering.published import PublishedRecipe
from leakgauge.encodings import CrossDataset, InsideDataset
from leakgauge.errors import InvalidCase
from leakgauge.metrics.alignment import align
from leakgauge.metrics.psnr import PSNR
from leakgauge.randomness import seeded
from leakgauge.reproduce.measures.pools import Pools, publish
from leakgauge.reproduce.measures.recovery import Judge
from leakgauge.reproduce.measures.restoring import DEPLOYMENTS, Trial, cluster_encodings, incidences
from leakgauge.types import Batch

SIDE = 12


@pytest.fixture(scope="module")
def pools() -> Pools:
    images = fields(700, SIDE, 3).float() * 0.8
    return Pools(Batch(images[:60], torch.arange(60) % 5), images[60:200], images[200:])


@pytest.fixture(scope="module")
def judge(pools) -> Judge:
    return Judge(pools.auxiliary, HighPass().fit(pools.auxiliary))


def test_with_the_true_assignment_recovery_is_exact(pools, judge) -> None:
    clustered = cluster_encodings(pools, Trial(private=12, copies=12, knows="mixing"), judge=judge)
    assert clustered.recovery.psnr > 60
    assert clustered.recovery.identification_by_correlation == 1
    assert "mixing: given, an upper bound on leakage" in clustered.given


def test_in_double_precision_recovery_is_exact_to_ten_digits(pools) -> None:
    doubled = Pools(Batch(pools.private.inputs.double(), pools.private.labels), pools.public, pools.auxiliary)
    publication = publish(InsideDataset(4), doubled, 10, seed=0, copies=12)
    observation = dataclasses.replace(publication.observation, num_private=10)
    found = Clustering(rounds=0).from_assignment(
        observation, publication.mixing.matrix(10), publication.private.labels, generator=seeded(0)
    )
    assert float(PSNR()(align(found, publication.private)).min()) > 120


def test_from_labels_alone_every_image_is_recovered_and_unrelated_encodings_give_none(pools, judge) -> None:
    trial = Trial(InsideDataset(3), private=10, copies=16, attack=Clustering(rounds=8))
    row = cluster_encodings(pools, trial, judge=judge)
    assert row.found == 10
    assert row.recovery.identification_by_correlation == 1
    assert row.recovery.psnr_fitted > 38
    assert row.recall > 0.95
    assert row.precision > 0.95
    assert row.null.identification_by_correlation <= 0.1
    assert row.recall_null < 0.7
    assert row.precision_null < 0.7
    assert "class counts: read from the labels" in row.given


@pytest.mark.slow
def test_encodings_of_eight_bits_are_hardly_safer(pools, judge) -> None:
    trial = Trial(InsideDataset(3), 10, 14, knows="counts", deployment="8 bits", attack=Clustering(rounds=8))
    row = cluster_encodings(pools, trial, judge=judge)
    assert row.recovery.psnr_fitted > 35
    assert "class counts: given" in row.given


@pytest.mark.slow
def test_mirrored_images_are_harder_and_the_residual_says_so(pools, judge) -> None:
    straight = Trial(InsideDataset(2), private=8, copies=10, knows="number", attack=Clustering(rounds=5))
    trials = straight, dataclasses.replace(straight, deployment="private images mirrored at random")
    plain, moved = (cluster_encodings(pools, trial, judge=judge) for trial in trials)
    assert moved.residual > 10 * plain.residual
    assert moved.recovery.psnr_fitted < plain.recovery.psnr_fitted


def test_amid_public_images_private_ones_are_identified(pools, judge) -> None:
    trial = Trial(CrossDataset(4), private=8, copies=40, knows="number")
    row = cluster_encodings(pools, trial, judge=judge)
    assert row.recovery.identification_by_correlation > 0.7
    assert row.recovery.psnr_fitted > 20


@pytest.mark.parametrize("k", [2, 4])
def test_told_the_mixing_the_published_recipe_restores_the_images(pools, judge, k: int) -> None:
    recipe = PublishedRecipe(steps=150, learning_rate=0.04)
    trial = Trial(InsideDataset(k), private=8, copies=10, knows="mixing", attack=recipe)
    told = cluster_encodings(pools, trial, judge=judge)
    assert told.recovery.psnr_fitted > told.null.psnr_fitted + 8
    assert told.recovery.identification_by_correlation > 0.8
    once = cluster_encodings(
        pools, dataclasses.replace(trial, attack=dataclasses.replace(recipe, starts=1)), judge=judge
    )
    assert told.recovery.psnr_fitted > once.recovery.psnr_fitted + 3


@pytest.mark.slow
def test_the_stronger_reconstruction_beats_the_published_recipe(pools, judge) -> None:
    publication = publish(InsideDataset(2), pools, 8, seed=0, copies=10)
    observation = dataclasses.replace(publication.observation, num_private=8)
    scores = []
    for attack in (PublishedRecipe(steps=100, learning_rate=0.03), Clustering(rounds=6)):
        found = attack(observation, generator=seeded(0))
        estimates = align(found, publication.private).reconstructions.nan_to_num(0.5)
        scores.append(judge(estimates, publication.private.inputs).psnr_fitted)
    assert scores[1] > scores[0] + 10


def test_the_likelier_pair_is_the_true_one_when_pictures_are_known() -> None:
    pictures = 2 * fields(6, SIDE).flatten(1).float() - 1
    classes = torch.tensor([0, 0, 0, 1, 1, 1])
    truth = torch.zeros(9, 6)
    truth[torch.arange(9), torch.arange(9) % 3], truth[torch.arange(9), 3 + torch.arange(9) // 3] = 0.3, 0.4
    truth[0] = torch.tensor([0.35, 0.35, 0.0, 0.0, 0.0, 0.0])
    labels = torch.stack([truth[:, :3].sum(dim=1), truth[:, 3:].sum(dim=1)], dim=1)
    noise = 0.1 * torch.randn(9, pictures.shape[1], generator=seeded(0))
    sizes = (truth @ pictures + noise).abs()
    found = likelier(pictures, sizes, torch.full((9,), 0.01), LabelSimplices(classes, labels))
    torch.testing.assert_close(found, truth)


def test_more_public_weight_is_more_noise() -> None:
    variances = public_variances(torch.tensor([[0.3], [0.6], [1.0]]), torch.full((3, 5), 0.5), 4, 2)
    assert variances[0] > variances[1] > variances[2] > 0


def test_incidences_count_what_is_right_whatever_the_order() -> None:
    truth = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.4, 0.6]])
    assert incidences(truth[:, [2, 0, 1]], truth) == (1.0, 1.0)
    assert incidences(torch.zeros(2, 3), truth) == (0.0, 0.0)


def test_a_trial_publishes_as_its_deployment_says(pools) -> None:
    assert DEPLOYMENTS["8 bits"].levels == 256
    images = Trial(private=5, copies=2, deployment="8 bits").publish(pools, 0).observation.encoded.images * 255
    torch.testing.assert_close(images, images.round())


def test_the_published_recipe_can_be_tried_and_says_how_many_images_it_found(pools, judge) -> None:
    trial = Trial(InsideDataset(2), private=5, copies=6, knows="counts", attack=PublishedRecipe(steps=3))
    clustered = cluster_encodings(pools, trial, judge=judge)
    assert 1 <= clustered.found <= 5
    assert clustered.estimates.shape == clustered.originals.shape


def test_a_trial_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidCase, match="8 bits"):
        Trial(deployment="seven bits")


def test_counts_of_other_classes_and_senseless_budgets_are_refused(pools) -> None:
    observation = publish(InsideDataset(2), pools, 5, seed=0, copies=2).observation
    with pytest.raises(InvalidCase, match="one count per class"):
        private_classes(dataclasses.replace(observation, class_counts=torch.tensor([5])))
    with pytest.raises(InvalidCase, match="pixels"):
        Clustering(pixels=0)
    with pytest.raises(InvalidCase, match="steps"):
        PublishedRecipe(steps=0)


@pytest.mark.slow
def test_the_demasked_encodings_are_the_mixtures_themselves(pools) -> None:
    publication = publish(InsideDataset(2), pools, 8, seed=0, copies=20)
    seen = dataclasses.replace(publication.observation, num_private=8)
    found = Clustering()(seen, generator=seeded(0, "attack")).decoding
    assert found is not None
    mixtures = publication.mixing.mix(publication.private.inputs)[found.coefficients.argmax(dim=0)]
    assert float(((found.demasked - mixtures).abs() > 1e-3).double().mean()) < 0.01
    assert float(((found.encodings - mixtures).abs() > 1e-3).double().mean()) > 0.3
