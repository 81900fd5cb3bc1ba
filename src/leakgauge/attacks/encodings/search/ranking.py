"""The best candidates for each query among any number of them: one product of matrices for each block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from leakgauge.attacks.encodings.algebra.whitening import unit
from leakgauge.errors import InvalidCase

Score = Literal["inner", "cosine", "absolute cosine"]
"""Inner product; the same divided by the candidate's length; that up to a global sign (a demasker may err by one)."""

BLOCK = 4096


class Ranking(NamedTuple):
    """For each query its best candidates, best first: their numbers and their scores, both queries x m."""

    indices: Tensor
    scores: Tensor


def blocks(rows: Tensor, size: int = BLOCK) -> Iterable[Tensor]:
    """The rows in pieces of at most ``size``, which can be gone through again and again."""
    if size < 1:
        raise InvalidCase(f"A block holds at least one row, got {size}.")
    return rows.split(size)


def score_pairs(queries: Tensor, block: Tensor, score: Score) -> Tensor:
    """The score of every query (rows q d) with every candidate (rows b d): q x b."""
    products = queries @ (block if score == "inner" else unit(block)).mT
    return products.abs() if score == "absolute cosine" else products


def score_rows(queries: Tensor, candidates: Tensor, score: Score) -> Tensor:
    """The score of every query with the candidate of the same row."""
    products = (queries * (candidates if score == "inner" else unit(candidates))).sum(dim=1)
    return products.abs() if score == "absolute cosine" else products


def no_matches(queries: Tensor) -> Ranking:
    """Where a running ranking starts."""
    return Ranking(torch.empty(len(queries), 0, dtype=torch.long), queries.new_empty(len(queries), 0))


def with_block(best: Ranking, scores: Tensor, first: int, most: int) -> Ranking:
    """The ranking after the candidates first, first + 1, ..., whose scores are q x b; equal scores keep their order."""
    here = scores.topk(min(most, scores.shape[1]), dim=1)
    values = torch.cat([best.scores, here.values], dim=1)
    order = values.argsort(dim=1, descending=True, stable=True)[:, :most]
    numbers = torch.cat([best.indices, here.indices + first], dim=1)
    return Ranking(numbers.gather(1, order), values.gather(1, order))


def top_matches(queries: Tensor, candidates: Iterable[Tensor], *, most: int, score: Score = "cosine") -> Ranking:
    """The ``most`` best candidates for each query (rows q d) among blocks of rows, of which one is held at a time."""
    if most < 1:
        raise InvalidCase(f"A ranking needs most >= 1, got {most}; it is how many candidates are kept.")
    if score not in get_args(Score):
        raise InvalidCase(f"There is no score {score!r}; choose from {', '.join(get_args(Score))}.")
    best = no_matches(queries)
    first = 0
    for block in candidates:
        best = with_block(best, score_pairs(queries, block, score), first, most)
        first += len(block)
    if most > first:
        raise InvalidCase(f"There are {first} candidates, fewer than the {most} asked for; lower `most`.")
    return best


def without_own(found: Tensor, own: Tensor) -> Tensor:
    """Matches q x m without the query's own number, or where a copy of it crowded it out, without the last.

    >>> without_own(torch.tensor([[4, 0, 2], [7, 8, 9]]), torch.tensor([0, 1])).tolist()
    [[4, 2], [7, 8]]
    """
    dropped = found == own[:, None]
    dropped[~dropped.any(dim=1), -1] = True
    return found[~dropped].view(len(found), -1)
