"""What tells whether an encoding contains an image, and the best candidates by it: one product of matrices a block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, Protocol, get_args

import torch
from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.whitening import (
    AsPublished,
    FeatureMap,
    Features,
    Squares,
    View,
    Whitened,
    centred,
    unit,
    whitener,
)
from leakgauge.attacks.encodings.base import auxiliary_of
from leakgauge.attacks.encodings.simulation import mixtures
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import EncodingObservation

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


class Sides(NamedTuple):
    """How encodings and how candidate images become rows that are compared by a score."""

    encodings: FeatureMap
    images: FeatureMap


class Statistic(Protocol):
    """What is computed for an encoding and a candidate image; large if the one contains the other."""

    @property
    def score(self) -> Score: ...

    def fit(self, observation: EncodingObservation, *, generator: Generator) -> Sides: ...


@dataclass(frozen=True)
class Correlation:
    """<f(x~), f(s)>, f a feature map fitted to auxiliary images [Huang et al., 2020, section 2.2].

    With `UnitLength` features this is the published statistic.
    """

    features: Features = field(default_factory=Whitened)
    view: View = field(default_factory=AsPublished)
    score: Score = "cosine"

    def fit(self, observation: EncodingObservation, *, generator: Generator) -> Sides:
        del generator
        mapped = self.features.fit(self.view.images(auxiliary_of(observation, self)))
        return Sides(
            lambda encodings: mapped(self.view.encodings(encodings)), lambda images: mapped(self.view.images(images))
        )


@dataclass(frozen=True)
class MatchedFilter:
    """(v(x~) - m)^T (C + ridge)^-1 (v(s) - m') over its length in s: C is what views v of encodings vary by.

    Mean m and covariance C come from ``encodings`` simulated encodings of auxiliary images, m' from those images. The
    default ridge is the best for squares on mixtures of CIFAR-100, of those from 1e-3 to 0.4.
    """

    view: View = field(default_factory=Squares)
    ridge: float = 3e-3
    encodings: int = 6000
    score: Score = "cosine"

    def __post_init__(self) -> None:
        if not self.ridge >= 0 or self.encodings < 2:
            raise InvalidCase(
                f"MatchedFilter needs ridge >= 0 and encodings >= 2, got {self.ridge} and {self.encodings}; correct "
                "them."
            )

    def fit(self, observation: EncodingObservation, *, generator: Generator) -> Sides:
        pool = auxiliary_of(observation, self)
        simulated = mixtures(pool, observation.k, self.encodings, generator=generator).images
        whiten = whitener(_rows(self.view.encodings(simulated)), self.ridge)
        around = whiten._replace(mean=_rows(self.view.images(pool)).mean(dim=0))
        return Sides(
            lambda encodings: whiten(_rows(self.view.encodings(encodings))),
            lambda images: around(_rows(self.view.images(images))),
        )


def _rows(images: Tensor) -> Tensor:
    return centred(images).flatten(1)


@dataclass(frozen=True)
class FourthMoment:
    """v_s = <x~^2, s^2> - |x~|^2 |s|^2 / d, as published [Braverman, 2020, in Huang et al., 2020, section 6].

    It is the inner product of squares without their means. For images of independent Gaussian pixels of variance v its
    expectation is 2 (d - 1) lam_s^2 v^2, and 0 for an image that is not in the mixture.
    """

    score: ClassVar[Score] = "inner"

    def fit(self, observation: EncodingObservation, *, generator: Generator) -> Sides:
        del observation, generator
        return Sides(_squares, _squares)


def whitened_squares(ridge: float = 3e-3, encodings: int = 6000) -> MatchedFilter:
    """The same for real images: (x~^2 - m)^T (C + ridge)^-1 (s^2 - m') over its length in s, see `MatchedFilter`."""
    return MatchedFilter(Squares(), ridge, encodings)


def _squares(images: Tensor) -> Tensor:
    squares = centred(images).flatten(1).square()
    return squares - squares.mean(dim=1, keepdim=True)
