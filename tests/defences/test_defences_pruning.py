from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.defences import Pruning
from leakgauge.defences.pruning import keep_largest
from leakgauge.randomness import seeded

SHARES = st.floats(0, 1, exclude_min=True)
SHAPES = st.lists(st.integers(1, 6), max_size=3)


@settings(deadline=None, max_examples=200)
@given(shape=SHAPES, share=SHARES, levels=st.integers(1, 3), seed=st.integers(0, 99))
def test_exactly_the_stated_share_survives_even_with_ties(shape, share, levels, seed):
    generator = seeded(seed)
    magnitudes = torch.randint(1, levels + 1, shape, generator=generator).float()
    tensor = magnitudes * (2 * torch.randint(2, shape, generator=generator) - 1)
    pruned = keep_largest(tensor, share)
    survives = pruned != 0
    assert int(survives.sum()) == max(1, round(share * tensor.numel()))
    assert torch.equal(pruned[survives], tensor[survives])
    if bool((~survives).any()):
        assert tensor[survives].abs().min() >= tensor[~survives].abs().max()


@settings(deadline=None, max_examples=50)
@given(shape=SHAPES, share=SHARES)
def test_pruning_again_changes_nothing(shape, share):
    once = keep_largest(torch.randn(shape, generator=seeded(0)), share)
    assert torch.equal(keep_largest(once, share), once)


def test_each_tensor_is_pruned_by_itself():
    update = {"large": torch.full((10,), 100.0), "small": torch.full((10,), 1e-6)}
    pruned = Pruning(0.2).transform(update, generator=seeded(0))
    assert {name: int((tensor != 0).sum()) for name, tensor in pruned.items()} == {"large": 2, "small": 2}


@pytest.mark.parametrize("share", [1e-9, 0.01])
def test_at_least_one_entry_survives(share):
    assert torch.equal(keep_largest(torch.tensor([1.0, -3.0, 2.0]), share), torch.tensor([0.0, -3.0, 0.0]))


def test_an_attacker_who_knows_matches_the_survivors_and_what_exceeds_the_smallest_of_them():
    observed = {"w": torch.tensor([5.0, 0.0, 0.0, -1.0])}
    # As long as what is visible, so that the bound is the smallest visible entry, 1.
    candidate = torch.tensor([-1.0, 7.0, 0.9, 5.0])
    predicted = Pruning(0.5).anticipate({"w": candidate}, observed=observed)["w"]
    torch.testing.assert_close(predicted, torch.tensor([-1.0, 6.0, 0.0, 5.0]), rtol=0, atol=1e-4)
    # Twice as long a candidate may hide entries of twice the size: the update may have been scaled down.
    torch.testing.assert_close(
        Pruning(0.5).anticipate({"w": 2 * candidate}, observed=observed)["w"], 2 * predicted, rtol=1e-5, atol=0
    )


def test_where_more_is_visible_than_one_pruning_leaves_only_that_is_matched():
    # Such as the mean of two pruned updates, whose entries may cancel.
    observed = {"w": torch.tensor([5.0, 0.0, 0.0, -1.0])}
    predicted = Pruning(0.25).anticipate({"w": torch.tensor([-1.0, 7.0, 0.9, 5.0])}, observed=observed)["w"]
    assert torch.equal(predicted, torch.tensor([-1.0, 0.0, 0.0, 5.0]))


@settings(deadline=None, max_examples=50)
@given(share=SHARES, factor=st.floats(0.01, 10), seed=st.integers(0, 99))
def test_the_true_update_is_anticipated_exactly_whatever_its_length(share, factor, seed):
    update = {"w": torch.randn(4, 5, generator=seeded(seed))}
    observed = {"w": factor * keep_largest(update["w"], share)}
    predicted = Pruning(share).anticipate(update, observed=observed)["w"]
    assert torch.equal(predicted, keep_largest(update["w"], share))
