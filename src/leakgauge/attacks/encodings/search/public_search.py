"""Which public images went into an encoding, in time O(N k) for N of them [Huang et al., 2020, section 2.2]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.whitening import FeatureMap, unit
from leakgauge.attacks.encodings.knowledge import public_of
from leakgauge.attacks.encodings.search.base import PublicImageAttack
from leakgauge.attacks.encodings.search.ranking import BLOCK, Ranking, blocks, top_matches
from leakgauge.attacks.encodings.search.statistics import Correlation, Statistic
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.encoded_set import EncodingObservation


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
