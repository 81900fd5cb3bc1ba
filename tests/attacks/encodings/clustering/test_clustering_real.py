"""The clustering attack on CIFAR-10, if the environment variable LEAKGAUGE_DATA names a folder with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leakgauge.attacks.encodings.algebra.whitening import HighPass
from leakgauge.data import Cifar10
from leakgauge.reproduce.measures.pools import Pools
from leakgauge.reproduce.measures.recovery import Judge
from leakgauge.reproduce.measures.restoring import Trial, cluster_encodings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("LEAKGAUGE_DATA" not in os.environ, reason="LEAKGAUGE_DATA names no data folder"),
]


@pytest.fixture(scope="module")
def pools() -> Pools:
    dataset = Cifar10()(Path(os.environ["LEAKGAUGE_DATA"]))
    return Pools(dataset.test, dataset.train.inputs[:10_000], dataset.train.inputs[10_000:20_000])


@pytest.mark.parametrize("knows", ["labels", "mixing"])
def test_inside_dataset_encodings_give_every_image_away_to_whoever_has_the_labels(pools, knows) -> None:
    judge = Judge(pools.auxiliary, HighPass().fit(pools.auxiliary))
    row = cluster_encodings(pools, Trial(private=20, copies=20, knows=knows), judge=judge)
    assert row.found == 20
    assert row.recovery.identification_by_correlation == 1
    assert row.recovery.psnr_fitted > (60 if knows == "mixing" else 38)
