"""Which public images went into an encoding, in time O(N k) for N of them [Huang et al., 2020, section 2.2]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.whitening import FeatureMap, unit
from leakgauge.attacks.encodings.knowledge import public_of
from leakgauge.attacks.encodings.search.base import PublicImageAttack
from leakgauge.attacks.encodings.search.ranking import BLOCK, Ranking, blocks, top_matches
from leakgauge.attacks.encodings.search.statistics import Correlation, Statistic
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.encoded_set import EncodingObservation


@dataclass(frozen=True)
class PublicSearch(PublicImageAttack[Ranking]):
    """Ranks the public images for every encoding by a statistic, and keeps the ``most`` best.

    Called, it holds one block of candidates at a time; prepared, it keeps the rows of all, N d numbers.
    """

    statistic: Statistic = field(default_factory=Correlation)
    most: int = 100
    block: int = BLOCK

    def __call__(
        self,
        observation: EncodingObservation,
        *,
        generator: Generator,
        pool: Iterable[Tensor] | None = None,
        progress: Progress = silent,
    ) -> Ranking:
        """``pool``: public images in blocks n c h w, read as they are needed, in place of ``observation.public``."""
        if pool is None:
            pool = blocks(public_of(observation, self), self.block)
        sides = self.statistic.fit(observation, generator=generator)
        queries = sides.encodings(observation.encoded.images)
        candidates = candidate_rows(pool, observation.public, sides.images, progress)
        return top_matches(queries, candidates, most=self.most, score=self.statistic.score)

    def prepare(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Callable[[Tensor], Ranking]:
        public = public_of(observation, self)
        sides = self.statistic.fit(observation, generator=generator)
        rows = list(candidate_rows(blocks(public, self.block), public, sides.images, progress))
        score = self.statistic.score
        if score == "cosine":
            score, rows = "inner", [unit(block) for block in rows]
        return lambda encodings: top_matches(sides.encodings(encodings), rows, most=self.most, score=score)


def candidate_rows(
    parts: Iterable[Tensor], whole: Tensor | None, mapped: FeatureMap, progress: Progress
) -> Iterator[Tensor]:
    """The rows of candidates given in blocks, a block at a time; ``whole`` tells how many there are."""
    done = 0
    for part in parts:
        yield mapped(part)
        done += len(part)
        progress(Tick(done, done / len(whole) if whole is not None else float("nan"), float("nan")))
