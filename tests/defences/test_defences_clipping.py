from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge import params as tree
from leakgauge.attacks.matching import Cosine
from leakgauge.defences import Clipping
from leakgauge.randomness import seeded
from leakgauge.types import ParamTree


def update_of_norm(norm: float, seed: int, dtype: torch.dtype = torch.float64) -> ParamTree:
    generator = seeded(seed)
    update = {name: torch.randn(size, generator=generator, dtype=dtype) for name, size in (("a", (3, 4)), ("b", (5,)))}
    return tree.scale(update, norm / tree.norm(update))


@settings(deadline=None, max_examples=100)
@given(norm=st.floats(1e-6, 1e6), max_norm=st.floats(1e-6, 1e6), seed=st.integers(0, 99))
def test_clipping_bounds_the_norm_and_keeps_the_direction(norm, max_norm, seed):
    update = update_of_norm(norm, seed)
    clipped = Clipping(max_norm).transform(update, generator=seeded(0))
    assert abs(float(tree.norm(clipped)) / min(norm, max_norm) - 1) < 1e-9
    assert abs(float(Cosine()(clipped, update))) < 1e-12


@settings(deadline=None, max_examples=100)
@given(norm=st.floats(1e-6, 1.0, exclude_max=True), seed=st.integers(0, 99), dtype=st.sampled_from(["32", "64"]))
def test_an_update_within_the_bound_leaves_bit_for_bit(norm, seed, dtype):
    update = update_of_norm(norm, seed, getattr(torch, f"float{dtype}"))
    clipped = Clipping(1.001).transform(update, generator=seeded(0))
    assert all(torch.equal(clipped[name], update[name]) for name in update)


def test_a_zero_update_stays_zero():
    clipped = Clipping(1.0).transform({"w": torch.zeros(3)}, generator=seeded(0))
    assert torch.equal(clipped["w"], torch.zeros(3))


def test_the_whole_update_is_clipped_with_one_factor():
    clipped = Clipping(1.0).transform({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, generator=seeded(0))
    torch.testing.assert_close(tree.flatten(clipped), torch.tensor([0.6, 0.8]))
