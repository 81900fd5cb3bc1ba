from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from leakgauge.metrics import Comparison, LabelCounts, LabelExistence, LabelRecall, Metric, class_counts

LABELS = st.lists(st.integers(0, 4), max_size=12)


def recall(true: Tensor, restored: Tensor | None) -> list[float]:
    images = torch.zeros(len(true), 1, 1, 1)
    scores: list[float] = LabelRecall()(Comparison(images, images, None, true, restored)).tolist()
    return scores


def share(metric: Metric, true: Tensor, restored: Tensor | None, num_classes: int | None = 5) -> float:
    images = torch.zeros(len(true), 1, 1, 1)
    (score,) = metric(Comparison(images, images, None, true, restored, num_classes=num_classes)).tolist()
    return float(score)


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
    assert share(LabelCounts(), soft, classes([0, 1]), 3) == 1.0
    assert share(LabelExistence(), classes([2, 2]), soft, 3) == 0.0


@given(true=LABELS, restored=LABELS)
def test_existence_and_counts_are_shares_of_all_classes_absent_ones_included(
    true: list[int], restored: list[int]
) -> None:
    right = [(true.count(one) > 0) == (restored.count(one) > 0) for one in range(5)]
    assert share(LabelExistence(), classes(true), classes(restored)) == pytest.approx(sum(right) / 5)
    exact = [true.count(one) == restored.count(one) for one in range(5)]
    assert share(LabelCounts(), classes(true), classes(restored)) == pytest.approx(sum(exact) / 5)


@given(true=LABELS, restored=LABELS)
def test_an_exact_count_implies_the_right_presence(true: list[int], restored: list[int]) -> None:
    pair = (classes(true), classes(restored))
    assert share(LabelCounts(), *pair) <= share(LabelExistence(), *pair)


@given(true=st.lists(st.integers(0, 4), min_size=1, max_size=12), restored=LABELS)
def test_all_counts_right_is_the_same_as_all_labels_restored_and_none_too_many(
    true: list[int], restored: list[int]
) -> None:
    perfect = share(LabelCounts(), classes(true), classes(restored)) == 1.0
    assert perfect == (all(recall(classes(true), classes(restored))) and len(true) == len(restored))


@pytest.mark.parametrize("metric", [LabelExistence(), LabelCounts()])
def test_without_restored_labels_or_the_number_of_classes_nothing_is_measured(metric: Metric) -> None:
    assert share(metric, classes([1]), None) != share(metric, classes([1]), None)  # NaN
    assert torch.tensor(share(metric, classes([1]), classes([1]), None)).isnan()
    assert share(metric, classes([1]), classes([1])) == 1.0


def test_labels_beyond_the_classes_of_the_model_are_not_counted() -> None:
    assert class_counts(classes([0, 2, 2, 7]), 4).tolist() == [1, 0, 2, 0]
    assert class_counts(classes([]), 2).tolist() == [0, 0]
