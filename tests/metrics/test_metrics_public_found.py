"""The share of public images that an attack on encodings named."""

from __future__ import annotations

import pytest
import torch

from leakgauge.errors import InvalidCase
from leakgauge.metrics import PublicFound, align
from leakgauge.types import Batch, Decoding, Outcome, Reconstruction

IMAGES = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
TRUTH = Batch(IMAGES, torch.zeros(3, dtype=torch.long))
MEMBERS = torch.tensor([[0, 1], [2, 3], [4, 5]])


def naming(public: torch.Tensor, images: torch.Tensor = IMAGES) -> Reconstruction:
    return Reconstruction(images, None, Outcome.SOLVED, decoding=Decoding(public, images, images, public))


def test_the_share_of_members_that_are_named_counts_whatever_their_order() -> None:
    named = torch.tensor([[1, 0], [2, 9], [8, 9]])
    scores = PublicFound()(align(naming(named), TRUTH, paired=True, members=MEMBERS))
    assert scores.tolist() == [1.0, 0.5, 0.0]


def test_what_did_not_come_back_or_names_nothing_is_not_measured() -> None:
    broken = IMAGES.clone()
    broken[1] = torch.nan
    scores = PublicFound()(align(naming(MEMBERS, broken), TRUTH, paired=True, members=MEMBERS))
    assert scores.isnan().tolist() == [False, True, False]
    assert PublicFound()(align(naming(MEMBERS), TRUTH)).isnan().all()


def test_paired_rows_stay_where_they_are_and_are_as_many_as_the_originals() -> None:
    backwards = IMAGES.flip(0)
    compared = align(naming(MEMBERS, backwards), TRUTH, paired=True)
    assert torch.equal(compared.reconstructions, backwards)
    assert compared.candidates is None
    matched = align(naming(MEMBERS, backwards), TRUTH)
    assert matched.partners is not None
    assert matched.partners.tolist() == [2, 1, 0]
    with pytest.raises(InvalidCase, match="one for each"):
        align(naming(MEMBERS, backwards[:2]), TRUTH, paired=True)
