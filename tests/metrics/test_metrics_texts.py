"""Scores of texts, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from leakgauge.metrics import Comparison, ExactText, Identification, Rouge1, Rouge2, RougeL, TokenRecall
from leakgauge.space import TokenSpace

SPACE = TokenSpace(6, ("", *(f" w{number}" for number in range(1, 10))))
METRICS = (TokenRecall(), ExactText(), Rouge1(), Rouge2(), RougeL())


def compare(originals, found, distractors=None):
    rows = torch.tensor(originals).float()
    others = None if distractors is None else torch.tensor(distractors).float()
    return Comparison(rows, torch.tensor(found).float(), others, torch.zeros(len(rows)), None, space=SPACE)


@pytest.mark.parametrize("metric", METRICS, ids=repr)
def test_the_truth_scores_its_best_and_what_is_missing_is_not_zero(metric):
    scores = metric(compare([[1, 2, 3, 0, 0, 0], [4, 5, 0, 0, 0, 0]], [[1, 2, 3, 0, 0, 0], [math.nan] * 6]))
    assert scores[0] == metric.exact
    assert scores[1].isnan()


def test_rouge_by_hand():
    # "the cat sat on the mat" and "the cat lay on the mat": 5 of 6 words, 3 of 5 pairs, 5 in order.
    found = compare([[1, 2, 3, 4, 1, 5]], [[1, 2, 6, 4, 1, 5]])
    assert float(Rouge1()(found)) == pytest.approx(5 / 6)
    assert float(Rouge2()(found)) == pytest.approx(3 / 5)
    assert float(RougeL()(found)) == pytest.approx(5 / 6)
    # Of different lengths: 2 words of 3 and of 2.
    short = compare([[1, 2, 3, 0, 0, 0]], [[3, 1, 0, 0, 0, 0]])
    assert float(Rouge1()(short)) == pytest.approx(4 / 5)
    assert float(Rouge2()(short)) == 0
    assert float(RougeL()(short)) == pytest.approx(2 / 5)


def test_tokens_count_as_found_wherever_in_the_batch_they_came_back():
    found = compare([[1, 2, 3, 4, 0, 0], [5, 6, 0, 0, 0, 0]], [[5, 1, 0, 0, 0, 0], [2, 9, 0, 0, 0, 0]])
    assert TokenRecall()(found).tolist() == [0.5, 0.5]
    assert ExactText()(found).tolist() == [0, 0]


def test_a_text_is_identified_among_others_by_what_it_has_in_common():
    others = [[7, 8, 9, 0, 0, 0], [1, 8, 0, 0, 0, 0]]
    assert Identification()(compare([[1, 2, 3, 0, 0, 0]], [[2, 3, 4, 0, 0, 0]], others)).tolist() == [1.0]
    assert Identification()(compare([[1, 2, 3, 0, 0, 0]], [[7, 8, 3, 0, 0, 0]], others)).tolist() == [0.0]
