"""Which public images went into an encoding, in time O(N k) for N of them [Huang et al., 2020, section 2.2]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, final

from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.whitening import FeatureMap, unit
from leakgauge.attacks.encodings.base import public_of
from leakgauge.attacks.encodings.search.ranking import BLOCK, Ranking, blocks, top_matches
from leakgauge.attacks.encodings.search.statistics import Correlation, Statistic
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
