"""Arithmetic on parameter trees, and random streams."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge import params as tree
from leakgauge.randomness import global_stream, seeded


@pytest.fixture(scope="module")
def million() -> tuple[np.ndarray, np.ndarray]:
    """Five million entries; squares of the second kind all have one sign, so nothing cancels."""
    generator = np.random.default_rng(0)
    return generator.random(5_000_000, np.float32), generator.random(5_000_000, np.float32)


def test_a_float32_dot_of_five_million_entries_keeps_six_digits(million):
    left, right = (torch.from_numpy(entries) for entries in million)
    exact = math.fsum((left.double() * right.double()).tolist())
    cut = [1, 4095, 4096, 4097, 1_000_000, 2_000_000]
    pieces = {f"{index}": index for index in range(len(cut) + 1)}
    lefts, rights = left.tensor_split(np.cumsum(cut).tolist()), right.tensor_split(np.cumsum(cut).tolist())
    split = tree.dot(
        {name: lefts[index] for name, index in pieces.items()}, {name: rights[index] for name, index in pieces.items()}
    )
    assert abs(float(tree.dot({"w": left}, {"w": right})) / exact - 1) < 1e-6
    assert abs(float(split) / exact - 1) < 1e-6
    assert abs(float(tree.norm({"w": left})) / math.sqrt(float(left.double().square().sum())) - 1) < 1e-6


@settings(deadline=None, max_examples=30)
@given(size=st.integers(1, 9000), seed=st.integers(0, 99))
def test_dot_is_the_dot_of_the_flattened_trees(size, seed):
    generator = seeded(seed)
    left, right = (
        {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in (("a", size), ("b", 3))}
        for _ in range(2)
    )
    expected = torch.dot(tree.flatten(left), tree.flatten(right))
    torch.testing.assert_close(tree.dot(left, right), expected, rtol=1e-11, atol=1e-11)
    assert tree.count(left) == size + 3


def test_trees_add_subtract_and_scale_entry_by_entry():
    left, right = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([4.0, -1.0])}
    assert torch.equal(tree.add(left, right, scale=2.0)["w"], torch.tensor([9.0, 0.0]))
    assert torch.equal(tree.sub(left, right)["w"], torch.tensor([-3.0, 3.0]))
    assert torch.equal(tree.scale(left, 3.0)["w"], torch.tensor([3.0, 6.0]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_entry_makes_a_tree_non_finite(bad):
    assert tree.is_finite({"w": torch.ones(3), "n": torch.tensor(3)})
    assert not tree.is_finite({"w": torch.ones(3), "v": torch.tensor([1.0, bad])})


@settings(max_examples=50)
@given(seed=st.integers(0, 2**40), stages=st.lists(st.sampled_from(["data", "client", "attack", 0, 1]), max_size=3))
def test_a_stream_is_a_function_of_seed_and_stage(seed, stages):
    draw = torch.rand(4, generator=seeded(seed, *stages))
    assert torch.equal(draw, torch.rand(4, generator=seeded(seed, *stages)))
    assert not torch.equal(draw, torch.rand(4, generator=seeded(seed, *stages, "more")))
    assert not torch.equal(draw, torch.rand(4, generator=seeded(seed + 1, *stages)))


def test_the_global_stream_comes_back_even_after_an_error():
    def fail() -> None:
        with global_stream(seeded(0)):
            torch.rand(3)
            raise ZeroDivisionError

    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.equal(torch.get_rng_state(), before)
