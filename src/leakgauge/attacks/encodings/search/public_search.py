"""Which public images went into an encoding: the best for each [Huang et al., 2020, section 2.2], or a combination."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar, final

import torch
from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.whitening import FeatureMap, unit
from leakgauge.attacks.encodings.base import public_of
from leakgauge.attacks.encodings.search.statistics import (
    BLOCK,
    Correlation,
    Ranking,
    Statistic,
    blocks,
    score_pairs,
    top_matches,
)
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.encoding import EncodingObservation


class Answer(Protocol):
    """Whatever else a search finds, ``indices`` are the public images it names for each encoding, best first."""

    @property
    def indices(self) -> Tensor: ...


Found = TypeVar("Found", bound=Answer, covariant=True)


class PublicImageAttack(ABC, Generic[Found]):
    """Names the public images in the encodings observed; ``prepare``, paid for once, gives what names them in any."""

    @abstractmethod
    def prepare(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Callable[[Tensor], Found]: ...

    def __call__(self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent) -> Found:
        return self.prepare(observation, generator=generator, progress=progress)(observation.encoded.images)


@final
@dataclass(frozen=True)
class PublicSearch(PublicImageAttack[Ranking]):
    """Ranks the public images for every encoding by a statistic, and keeps the ``most`` best."""

    statistic: Statistic = field(default_factory=Correlation)
    most: int = 100
    block: int = BLOCK

    def prepare(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Callable[[Tensor], Ranking]:
        public = public_of(observation, self)
        sides = self.statistic.fit(observation, generator=generator)
        rows = candidate_rows(public, self.block, sides.images, progress)
        score = self.statistic.score
        if score == "cosine":
            score, rows = "inner", [unit(block) for block in rows]
        return lambda encodings: top_matches(sides.encodings(encodings), rows, most=self.most, score=score)


def candidate_rows(public: Tensor, block: int, mapped: FeatureMap, progress: Progress) -> list[Tensor]:
    """The rows of all candidates, mapped a block at a time."""
    rows, done = [], 0
    for part in blocks(public, block):
        rows.append(mapped(part))
        done += len(part)
        progress(Tick(done, done / len(public), float("nan")))
    return rows


class Pursuit(NamedTuple):
    """Which candidates a query is a combination of, queries x atoms, and in which shares."""

    indices: Tensor
    coefficients: Tensor


def pursue(queries: Tensor, candidates: Iterable[Tensor], *, atoms: int) -> Pursuit:
    """Orthogonal matching pursuit [Pati et al., 1993]: the best candidate for what is left, then all refitted.

    Coefficients are shares of images, so a candidate is taken for its positive correlation. Blocks are gone through
    once for each atom.
    """
    chosen = torch.empty(len(queries), 0, dtype=torch.long)
    taken = queries.new_empty(len(queries), queries.shape[1], 0)
    coefficients = queries.new_empty(len(queries), 0)
    for _ in range(atoms):
        left = queries - (taken @ coefficients[:, :, None])[:, :, 0]
        number, vector = _best_new(left, candidates, chosen)
        chosen = torch.cat([chosen, number[:, None]], dim=1)
        taken = torch.cat([taken, vector[:, :, None]], dim=2)
        coefficients = torch.linalg.lstsq(taken, queries[:, :, None]).solution[:, :, 0]
    return Pursuit(chosen, coefficients)


@final
@dataclass(frozen=True)
class PublicPursuit(PublicImageAttack[Pursuit]):
    """Explains every encoding by as many public images as it holds: matching pursuit on the rows of a statistic."""

    statistic: Statistic = field(default_factory=Correlation)
    block: int = BLOCK

    def prepare(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Callable[[Tensor], Pursuit]:
        public = public_of(observation, self)
        sides = self.statistic.fit(observation, generator=generator)
        rows = candidate_rows(public, self.block, sides.images, progress)
        atoms = observation.k - observation.private_per_encoding
        return lambda encodings: pursue(sides.encodings(encodings), rows, atoms=atoms)


def remainder(encodings: Tensor, public: Tensor, found: Pursuit) -> Tensor:
    """What is left of mixtures without a mask when the public images found are taken out, scaled to an image in [0, 1].

    x = (x~ - sum_j lam_j s_j) / (1 - sum_j lam_j), shares being positive and private ones at least a tenth in all.
    """
    shares = found.coefficients.clamp(min=0)
    shares = shares * (0.9 / shares.sum(dim=1, keepdim=True).clamp(min=0.9))
    explained = torch.einsum("qa,qachw->qchw", shares, public[found.indices])
    return ((encodings - explained) / (1 - shares.sum(dim=1))[:, None, None, None]).clamp(0, 1)


def _best_new(left: Tensor, candidates: Iterable[Tensor], chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The candidate that correlates best with each row and is not chosen yet: its number and its vector."""
    number = torch.full((len(left),), -1)
    value = left.new_full((len(left),), -torch.inf)
    vector = torch.zeros_like(left)
    first = 0
    for block in candidates:
        scores = score_pairs(left, block, "cosine")
        inside = (chosen >= first) & (chosen < first + len(block))
        row, column = inside.nonzero(as_tuple=True)
        scores[row, chosen[row, column] - first] = -torch.inf
        here, where = scores.max(dim=1)
        better = here > value
        number, value = torch.where(better, where + first, number), torch.where(better, here, value)
        vector = torch.where(better[:, None], block[where], vector)
        first += len(block)
    if bool((number < 0).any()):
        raise InvalidCase(f"There are {first} candidates, fewer than the atoms asked for; pass more public images.")
    return number, vector
