from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.data import Dataset
from leakgauge.data.datasets import rank_within_class, split_every_fifth
from leakgauge.errors import InvalidCase
from leakgauge.types import Batch

LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=40)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(labels: list[int]) -> Batch:
    return Batch(torch.zeros(len(labels), 1, 2, 3), torch.tensor(labels, dtype=torch.int64))


def dataset(labels: list[int], num_classes: int = 6) -> Dataset:
    return Dataset("toy", train=batch([]), test=batch(labels), class_names=tuple(map(str, range(num_classes))))


def test_a_dataset_knows_its_classes_and_its_space() -> None:
    assert dataset([0, 1]).num_classes == 6
    assert dataset([0, 1]).space.shape == (1, 2, 3)


@settings(deadline=None, max_examples=50)
@given(labels=LABELS, seed=st.integers(0, 2**31), distinct=st.booleans(), data=st.data())
def test_drawn_indices_are_distinct_valid_and_as_many_as_asked(
    labels: list[int], seed: int, distinct: bool, data: st.DataObject
) -> None:
    toy = dataset([sorted(set(labels)).index(label) for label in labels], num_classes=len(set(labels)))
    count = data.draw(st.integers(1, len(labels)))
    drawn = toy.draw(count, generator=seeded(seed), distinct_labels=distinct).tolist()
    assert len(drawn) == len(set(drawn)) == count
    assert set(drawn) <= set(range(len(labels)))


@settings(deadline=None, max_examples=50)
@given(labels=LABELS, seed=st.integers(0, 2**31), data=st.data())
def test_distinct_labels_do_not_repeat_while_there_are_enough(
    labels: list[int], seed: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(set(labels))))
    drawn = dataset(labels).draw(count, generator=seeded(seed), distinct_labels=True)
    assert len({labels[index] for index in drawn.tolist()}) == count


def test_more_examples_than_classes_use_each_label_equally_often() -> None:
    toy = dataset([0] * 50 + [1] * 3 + [2] * 3, num_classes=3)
    drawn = toy.draw(9, generator=seeded(0), distinct_labels=True)
    assert toy.test.labels[drawn].bincount().tolist() == [3, 3, 3]


def test_the_same_seed_draws_the_same_and_another_seed_does_not() -> None:
    toy = dataset([0] * 100)
    assert torch.equal(toy.draw(20, generator=seeded(3)), toy.draw(20, generator=seeded(3)))
    assert not torch.equal(toy.draw(20, generator=seeded(3)), toy.draw(20, generator=seeded(4)))


@pytest.mark.parametrize("count", [0, -3])
def test_fewer_than_one_example_cannot_be_drawn(count: int) -> None:
    with pytest.raises(InvalidCase, match=rf"^Cannot draw {count} examples from 'toy'; ask for at least 1.$"):
        dataset([0, 1]).draw(count, generator=seeded(0))


def test_more_examples_than_there_are_cannot_be_drawn() -> None:
    with pytest.raises(
        InvalidCase, match=r"^Cannot draw 3 examples from 'toy', whose test split has 2; ask for fewer.$"
    ):
        dataset([0, 1]).draw(3, generator=seeded(0))


def test_labels_that_the_test_split_lacks_cannot_be_drawn() -> None:
    with pytest.raises(
        InvalidCase, match=r"Cannot draw 3 distinct labels .* has 2 of its 6 classes; ask for at most 2"
    ):
        dataset([0, 1, 1, 1]).draw(3, generator=seeded(0), distinct_labels=True)


@pytest.mark.parametrize("label", [-1, 6])
def test_a_label_outside_the_named_classes_is_refused(label: int) -> None:
    with pytest.raises(InvalidCase, match=r"must be class numbers from 0 to 5"):
        dataset([0, label])


def test_splits_of_different_shape_are_refused() -> None:
    other = Batch(torch.zeros(1, 3, 2, 3), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(InvalidCase, match=r"shapes \(3, 2, 3\) and \(1, 2, 3\); bring them to one shape"):
        Dataset("toy", train=other, test=batch([0]), class_names=("a",))


def test_highlights_beyond_the_test_split_are_refused() -> None:
    with pytest.raises(InvalidCase, match=r"highlights \(0, 1\) of 'toy' reach beyond its 1 test inputs"):
        Dataset("toy", train=batch([]), test=batch([0]), class_names=("a",), highlights=(0, 1))


@settings(deadline=None, max_examples=50)
@given(labels=LABELS)
def test_the_rank_counts_earlier_entries_with_the_same_label(labels: list[int]) -> None:
    expected = [labels[:position].count(label) for position, label in enumerate(labels)]
    assert rank_within_class(torch.tensor(labels)).tolist() == expected


@settings(deadline=None, max_examples=50)
@given(labels=LABELS)
def test_the_split_tests_a_fifth_of_each_class_rounded_up(labels: list[int]) -> None:
    numbered = Batch(torch.arange(len(labels)).view(-1, 1, 1, 1), torch.tensor(labels))
    train, test = split_every_fifth(numbered)
    assert sorted([*train.inputs.flatten().tolist(), *test.inputs.flatten().tolist()]) == list(range(len(labels)))
    for label in set(labels):
        assert int((test.labels == label).sum()) == -(-labels.count(label) // 5)
