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


def test_an_attacker_who_knows_matches_only_on_the_survivors():
    update = {"w": torch.tensor([5.0, 0.0, -1.0])}
    predicted = Pruning(0.5).anticipate({"w": torch.tensor([4.0, 7.0, 3.0])}, observed=update)
    assert torch.equal(predicted["w"], torch.tensor([4.0, 0.0, 3.0]))
