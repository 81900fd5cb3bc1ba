from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from leakgauge.metrics import Comparison, LabelRecall

LABELS = st.lists(st.integers(0, 4), max_size=12)


def recall(true: Tensor, restored: Tensor | None) -> list[float]:
    images = torch.zeros(len(true), 1, 1, 1)
    scores: list[float] = LabelRecall()(Comparison(images, images, None, true, restored)).tolist()
    return scores


def classes(labels: list[int]) -> Tensor:
    return torch.tensor(labels, dtype=torch.long)


@given(true=LABELS, restored=LABELS)
def test_the_sum_is_the_size_of_the_multiset_intersection(true: list[int], restored: list[int]) -> None:
    assert sum(recall(classes(true), classes(restored))) == (Counter(true) & Counter(restored)).total()


@given(true=LABELS, restored=LABELS)
def test_the_first_examples_of_a_class_are_the_recovered_ones(true: list[int], restored: list[int]) -> None:
    scores = recall(classes(true), classes(restored))
    for label in set(true):
        own = [score for score, other in zip(scores, true, strict=True) if other == label]
        assert own == sorted(own, reverse=True)


@given(true=LABELS, restored=st.permutations([0, 0, 1, 2, 2, 2, 4]))
def test_the_order_of_restored_labels_does_not_matter(true: list[int], restored: list[int]) -> None:
    assert recall(classes(true), classes(restored)) == recall(classes(true), classes(sorted(restored)))


@given(true=st.lists(st.integers(0, 4), min_size=1, max_size=12), wrong=st.integers(0, 11))
def test_each_wrong_label_costs_one_example(true: list[int], wrong: int) -> None:
    wrong = min(wrong, len(true))
    scores = recall(classes(true), classes([9] * wrong + true[wrong:]))
    assert sum(scores) == len(true) - wrong


def test_no_labels_restored_is_a_miss_but_not_attempted_is_nan() -> None:
    assert recall(classes([1, 2]), classes([])) == [0.0, 0.0]
    assert recall(classes([1, 2]), None) == pytest.approx([float("nan")] * 2, nan_ok=True)


def test_class_probabilities_count_as_their_likeliest_class() -> None:
    soft = torch.tensor([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]])
    assert recall(soft, classes([1, 2])) == [1.0, 0.0]
    assert recall(classes([0, 2]), soft) == [1.0, 0.0]
