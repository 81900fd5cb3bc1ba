"""Which images an update is made of, and under which labels: a function of the labels there are and of the seed."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded
from leakgauge.reproduce.draws import AtRandom, Chosen, Draw, InOrder, Skewed

LABELS = torch.arange(400) % 10
"""Forty images of each of ten classes."""


def drawn(
    draw: Draw,
    labels: Tensor = LABELS,
    *,
    updates: int = 3,
    batch_size: int = 12,
    minibatch: int | None = None,
    classes: int = 10,
    seed: int = 0,
) -> list[Chosen]:
    return draw(
        labels,
        updates=updates,
        batch_size=batch_size,
        minibatch=minibatch or batch_size,
        classes=classes,
        generator=seeded(seed),
    )


def indices(chosen: list[Chosen]) -> list[list[int]]:
    return [one.images.tolist() for one in chosen]


# All


DRAWS = [InOrder(), InOrder(5), AtRandom(), AtRandom(relabelled=True), Skewed(4, 3), Skewed(1, 12)]


@pytest.mark.parametrize("draw", DRAWS, ids=repr)
def test_a_draw_is_a_function_of_the_seed(draw: Draw) -> None:
    once, again, other = (drawn(draw, seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for one, two in zip(once, again, strict=True) for a, b in zip(one, two, strict=True))
    assert (indices(once) == indices(other)) == isinstance(draw, InOrder)


@pytest.mark.parametrize("draw", DRAWS, ids=repr)
def test_a_draw_gives_so_many_updates_of_so_many_distinct_images(draw: Draw) -> None:
    chosen = drawn(draw, updates=5)
    assert len(chosen) == 5
    for images, labels in chosen:
        assert len(set(images.tolist())) == len(images) == len(labels) == 12
        assert 0 <= int(images.min()) <= int(images.max()) < 400
        assert 0 <= int(labels.min()) <= int(labels.max()) < 10


@pytest.mark.parametrize("draw", [InOrder(), AtRandom(), Skewed(4, 3)], ids=repr)
def test_images_keep_their_labels_unless_said_otherwise(draw: Draw) -> None:
    for images, labels in drawn(draw):
        assert torch.equal(labels, LABELS[images])


# In order


@given(
    labels=st.lists(st.integers(0, 4), min_size=60, max_size=80),
    batches=st.integers(1, 3),
    minibatch=st.integers(1, 3),
    updates=st.integers(1, 2),
    first=st.integers(0, 7),
)
def test_images_come_in_order_once_and_no_mini_batch_has_a_label_twice(
    labels: list[int], batches: int, minibatch: int, updates: int, first: int
) -> None:
    tensor = torch.tensor([*range(5), *labels, *(list(range(5)) * 20)])  # enough of each
    chosen = drawn(InOrder(first), tensor, updates=updates, batch_size=batches * minibatch, minibatch=minibatch)
    flat = torch.cat([one.images for one in chosen])
    assert len(chosen) == updates
    assert flat[0] == first
    assert bool((flat.diff() > 0).all())
    for group in flat.split(minibatch):
        assert len(tensor[group].unique()) == minibatch
    for group, following in zip(flat.split(minibatch), flat.split(minibatch)[1:]):
        # What lies between two images that were taken carries a label that the mini-batch had already.
        assert following[0] == group[-1] + 1
        for index in set(range(int(group[0]), int(group[-1]))) - set(group.tolist()):
            assert tensor[index] in tensor[group[group < index]]


def test_single_images_are_the_first_ones_whatever_their_labels() -> None:
    alike = torch.zeros(9, dtype=torch.long)
    assert indices(drawn(InOrder(), alike, updates=4, batch_size=1)) == [[0], [1], [2], [3]]
    assert indices(drawn(InOrder(first=3), alike, updates=2, batch_size=1)) == [[3], [4]]


def test_with_too_few_classes_a_label_comes_again_only_after_all_have_come() -> None:
    (chosen,) = drawn(InOrder(), torch.tensor([0, 0, 1, 1, 0, 0, 1]), updates=1, batch_size=4)
    assert chosen.images.tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize(("first", "left"), [(0, 4), (3, 1)])
def test_too_few_images_are_refused(first: int, left: int) -> None:
    with pytest.raises(InvalidCase, match=rf"{left} test images are too few for 5 updates of 1.*lower --images"):
        drawn(InOrder(first), torch.arange(4), updates=5, batch_size=1)


# At random


def test_every_image_has_its_turn() -> None:
    times = Counter(index for update in indices(drawn(AtRandom(), updates=300, batch_size=40)) for index in update)
    assert len(times) == 400
    assert max(times.values()) < 60  # of thirty expected


def test_a_batch_larger_than_the_data_repeats_no_image_before_all_have_come() -> None:
    ((images, labels),) = drawn(AtRandom(), LABELS[:7], updates=1, batch_size=17)
    assert Counter(Counter(images.tolist()).values()) == {2: 4, 3: 3}
    assert len(set(images[:7].tolist())) == len(set(images[7:14].tolist())) == 7
    assert torch.equal(labels, LABELS[images])


def test_relabelled_images_are_the_same_under_labels_of_all_classes_alike() -> None:
    plain, relabelled = drawn(AtRandom()), drawn(AtRandom(relabelled=True), classes=1000)
    assert indices(plain) == indices(relabelled)
    many = torch.cat([one.labels for one in drawn(AtRandom(relabelled=True), updates=100, batch_size=60, classes=30)])
    counts = torch.bincount(many)
    assert len(counts) == 30
    # Chance leaves some 200 of each of the thirty, give or take 14.
    assert 120 < int(counts.min()) <= int(counts.max()) < 280


# Skewed


@settings(max_examples=30)
@given(present=st.integers(1, 10), repeats=st.integers(1, 40), seed=st.integers(0, 99))
def test_a_skewed_batch_has_so_many_classes_so_often_each(present: int, repeats: int, seed: int) -> None:
    for images, labels in drawn(Skewed(present, repeats), batch_size=present * repeats, seed=seed):
        assert sorted(Counter(labels.tolist()).values()) == [repeats] * present
        assert torch.equal(labels, LABELS[images])
        assert len(set(images.tolist())) == present * repeats


def test_other_updates_have_other_classes() -> None:
    chosen = drawn(Skewed(2, 6), updates=40)
    assert {label for one in chosen for label in one.labels.tolist()} == set(range(10))


@pytest.mark.parametrize(("repeats", "classes"), [(41, 10), (3, 12)])
def test_where_there_are_too_few_images_of_a_class_others_get_its_label(repeats: int, classes: int) -> None:
    for images, labels in drawn(Skewed(2, repeats), batch_size=2 * repeats, classes=classes):
        assert sorted(Counter(labels.tolist()).values()) == [repeats] * 2
        assert len(set(images.tolist())) == 2 * repeats
        assert not torch.equal(labels, LABELS[images])


@pytest.mark.parametrize("draw", [Skewed(4, 4), Skewed(12, 1)])
def test_a_skew_that_does_not_make_the_batch_is_refused(draw: Draw) -> None:
    with pytest.raises(InvalidCase, match=r"^Skewed\(.*not of 12 from at most 10; change one of them\.$"):
        drawn(draw)


def test_nulls_have_other_labels_where_all_classes_are_there_equally_often() -> None:
    every = Skewed(present=10, repeats=1)
    assert every.of_nulls(10) == AtRandom()
    (null,) = drawn(every.of_nulls(10), updates=1, batch_size=10)
    assert len(null.labels.unique()) < 10
    for draw in (Skewed(present=4, repeats=3), AtRandom(), InOrder(3)):
        assert draw.of_nulls(10) == draw
