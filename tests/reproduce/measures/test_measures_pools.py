"""Whose images are whose: disjoint, and refused where there are too few."""

from __future__ import annotations

import pytest

from leakgauge.errors import InvalidCase
from leakgauge.reproduce import TABLES, Options
from leakgauge.reproduce.measures.pools import FirstPools, PoolSource, RandomPools
from leakgauge.reproduce.measures.restoring import ClusteringRecovery, Trial
from leakgauge.reproduce.run import embedded
from leakgauge.reproduce.table import Bench


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(TABLES["instahide/search"], Options(), embedded())


@pytest.mark.parametrize("source", [FirstPools(110, 200), RandomPools(40, 110, 200)], ids=repr)
def test_private_public_and_own_images_are_disjoint(source: PoolSource, bench: Bench) -> None:
    pools = source(bench)
    sets = [
        {image.numpy().tobytes() for image in part} for part in (pools.private.inputs, pools.public, pools.auxiliary)
    ]
    assert [len(pools.public), len(pools.auxiliary)] == [110, 200]
    for one, first in enumerate(sets):
        for second in sets[one + 1 :]:
            assert not first & second


def test_too_few_training_images_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidCase, match="20000 training images, but there are 784"):
        FirstPools(10_000, 10_000)(bench)


def test_a_row_says_what_the_attacker_was_told_and_its_null_is_no_recovery(bench: Bench) -> None:
    measure = ClusteringRecovery(Trial(private=6, copies=4, knows="mixing"), FirstPools(110, 200), seeds=1)
    found = measure(bench, ["row"])["row"]
    assert found.facts["setting"]["private_images"] == 6
    assert "mixing: given, an upper bound on leakage" in found.facts["assumptions"]
    assert found.ours["identification_by_correlation"].mean == 1
    assert (found.null["psnr_fitted"].mean or 0) < (found.ours["psnr_fitted"].mean or 0) - 5
    assert found.null["recall"].mean is not None
    assert found.originals is not None
    assert found.originals.isfinite().all()
