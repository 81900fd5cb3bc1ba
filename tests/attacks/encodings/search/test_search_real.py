"""The search on CIFAR-10 at the published scale, if the environment variable LEAKGAUGE_DATA names a folder with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leakgauge.attacks.encodings.algebra.whitening import UnitLength, Whitened
from leakgauge.attacks.encodings.search.public_search import PublicSearch
from leakgauge.attacks.encodings.search.statistics import Correlation, FourthMoment, whitened_squares
from leakgauge.data import Cifar10
from leakgauge.encodings import CrossDataset, Mixup
from leakgauge.reproduce.measures.pools import Pools
from leakgauge.reproduce.measures.searching import search_public_images

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("LEAKGAUGE_DATA" not in os.environ, reason="LEAKGAUGE_DATA names no data folder"),
]


@pytest.fixture(scope="module")
def pools() -> Pools:
    dataset = Cifar10()(Path(os.environ["LEAKGAUGE_DATA"]))
    return Pools(dataset.test, dataset.train.inputs[:10_000], dataset.train.inputs[10_000:20_000])


def test_whitening_makes_the_published_claim_about_mixup_true(pools):
    attacks = {"published": Correlation(UnitLength()), "whitened": Correlation(Whitened())}
    rows = search_public_images(
        pools, Mixup(4, public=3), {name: PublicSearch(statistic) for name, statistic in attacks.items()}
    )
    published, whitened = rows
    assert whitened.found[3] > 0.85  # 0.885 over three seeds
    assert 0.25 < published.found[3] < 0.45  # 0.35
    assert max(row.found_null[100] for row in rows) < 0.03


def test_whitened_squares_find_public_images_behind_the_mask(pools):
    attacks = {"published": FourthMoment(), "whitened": whitened_squares()}
    rows = search_public_images(
        pools,
        CrossDataset(4, private=1, least_private=0.0),
        {name: PublicSearch(statistic) for name, statistic in attacks.items()},
    )
    published, whitened = rows
    assert whitened.found[100] > 0.6  # 0.74 over three seeds
    assert 0.15 < published.found[100] < 0.3  # 0.23
    assert max(row.found_null[100] for row in rows) < 0.03
