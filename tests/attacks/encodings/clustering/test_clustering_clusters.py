"""Pairs, groups and counts."""

from __future__ import annotations

import pytest
import torch

from encodings_support import area, fields
from leakgauge.attacks.encodings.algebra.whitening import Magnitudes, PlainPixels, Squares, Whitened
from leakgauge.attacks.encodings.clustering.assignment import counts_from_labels, private_from_labels
from leakgauge.attacks.encodings.clustering.clusters import (
    PairSimilarity,
    balance,
    groups_by_class,
    grow_clusters,
    spectral,
)
from leakgauge.encodings import InsideDataset, SeededKeys, encrypt
from leakgauge.errors import MissingKnowledge
from leakgauge.protocol.encoding import EncodedSet, EncodingObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch

# The plain cosine of |E|, and E^2 whitened by the covariance of encodings of auxiliary images.
PUBLISHED, WHITENED = PairSimilarity(Magnitudes(), PlainPixels()), PairSimilarity(Squares(), Whitened())
BLOCKS = torch.block_diag(torch.ones(6, 6), torch.ones(6, 6), torch.ones(6, 6)) + 0.05


def labelled(classes: torch.Tensor, copies: int, k: int = 4, *, seed: int = 0, side: int = 4):
    batch = Batch(fields(len(classes), side, seed=seed), classes)
    keys = SeededKeys(seeded(seed, "keys"))
    return encrypt(InsideDataset(k), batch, classes=int(classes.max()) + 1, copies=copies, keys=keys)


def test_spectral_groups_are_the_blocks_of_a_block_matrix() -> None:
    groups = spectral(BLOCKS, 3, generator=seeded(0))
    assert [len(groups[start : start + 6].unique()) for start in (0, 6, 12)] == [1, 1, 1]
    assert len(groups.unique()) == 3


def test_balanced_groups_take_no_more_than_their_share() -> None:
    groups = balance(BLOCKS, torch.tensor([0] * 12 + [1] * 3 + [2] * 3), 3)
    assert int(torch.bincount(groups).max()) <= 7


def test_first_coefficients_carry_the_label_weight_of_each_class() -> None:
    labels = torch.rand(18, 2, generator=seeded(0))
    classes = torch.tensor([0, 0, 0, 1])
    found = groups_by_class(BLOCKS, labels, classes, generator=seeded(1))
    torch.testing.assert_close(found[:, :3].sum(dim=1), labels[:, 0])
    torch.testing.assert_close(found[:, 3], labels[:, 1])
    assert int((found > 0).sum(dim=1).max()) == 2


def test_greedy_growing_finds_blocks_without_knowing_them() -> None:
    blocks = torch.block_diag(*[torch.ones(16, 16)] * 3) + 0.01 * torch.rand(48, 48, generator=seeded(1))
    clusters = grow_clusters(blocks, 3, 16, generator=seeded(0), seeds=48)
    assert sorted({tuple(sorted(set((row // 16).tolist()))) for row in clusters}) == [(0,), (1,), (2,)]


def test_labels_give_away_how_many_images_there_are_and_of_which_class() -> None:
    classes = torch.tensor([0] * 5 + [1] * 2 + [3] * 4 + [4] * 1)
    encoded, _ = labelled(classes, 40)
    assert private_from_labels(encoded.labels, 4) == 12
    assert counts_from_labels(encoded.labels, 12).tolist() == [5, 2, 0, 4, 1]


def test_the_number_of_images_is_asked_for_where_labels_do_not_show_it() -> None:
    with pytest.raises(MissingKnowledge, match="num_private"):
        private_from_labels(torch.ones(8, 1), 4)


def test_pairs_that_share_an_image_score_higher_and_more_so_high_passed_than_as_published() -> None:
    batch = Batch(fields(30, 16, 3), torch.zeros(30, dtype=torch.long))
    encoded, secret = encrypt(InsideDataset(2), batch, classes=1, copies=6, keys=SeededKeys(seeded(0, "keys")))
    observation = EncodingObservation(encoded, 2, 2, auxiliary=fields(600, 16, 3, seed=5))
    mixing = secret.mixing.matrix(30)
    shared = (mixing @ mixing.T) > 0
    apart = ~torch.eye(len(mixing), dtype=torch.bool)
    areas = []
    for similarity in (PairSimilarity(), WHITENED, PUBLISHED):
        scores = similarity(observation, generator=seeded(1))
        areas.append(area(scores[shared & apart], scores[~shared]))
    assert min(areas[:2]) > 0.75
    assert min(areas[:2]) > areas[2] > 0.5


def test_whitened_pairs_ask_for_auxiliary_images() -> None:
    observation = EncodingObservation(EncodedSet(torch.rand(4, 1, 4, 4), torch.rand(4, 2)), 2, 2)
    with pytest.raises(MissingKnowledge, match="auxiliary"):
        WHITENED(observation, generator=seeded(0))
