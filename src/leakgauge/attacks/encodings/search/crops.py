"""The search for public images that were cropped at random before they were mixed: it tries every alignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Generator, Tensor

from leakgauge.attacks.encodings.base import public_of
from leakgauge.attacks.encodings.search.public_search import PublicImageAttack
from leakgauge.attacks.encodings.search.statistics import (
    Ranking,
    Sides,
    Statistic,
    no_matches,
    score_pairs,
    score_rows,
    with_block,
)
from leakgauge.encodings.crops import Cropping
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.encoding import EncodingObservation


@final
@dataclass(frozen=True)
class AlignedSearch(PublicImageAttack[Ranking]):
    """Tries every crop of every public image: random crops only multiply the candidates, here by 162.

    The best crop stands for the image. The statistic should be cheap to map; the Laplacian is.
    """

    statistic: Statistic
    cropping: Cropping = field(default_factory=Cropping)
    most: int = 100
    block: int = 4096

    def prepare(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Callable[[Tensor], Ranking]:
        public = public_of(observation, self)
        sides = self.statistic.fit(observation, generator=generator)

        def find(encodings: Tensor) -> Ranking:
            queries = sides.encodings(encodings)
            best, first = no_matches(queries), 0
            for part in public.split(self.block):
                scores = torch.full((len(queries), len(part)), -torch.inf).to(queries)
                for crop in self.cropping.every(part):
                    scores = torch.maximum(scores, score_pairs(queries, sides.images(crop), self.statistic.score))
                best = with_block(best, scores, first, min(self.most, len(public)))
                first += len(part)
                progress(Tick(first, first / len(public), float("nan")))
            return best

        return find

    def best_crops(self, encodings: Tensor, candidates: Tensor, sides: Sides) -> Tensor:
        """Candidates q m c h w for encodings q c h w, each in the alignment that scores best."""
        queries, flat = sides.encodings(encodings), candidates.flatten(0, 1)
        own = torch.arange(len(queries)).repeat_interleave(candidates.shape[1])
        best, chosen = queries.new_full((len(flat),), -torch.inf), flat
        for crop in self.cropping.every(flat):
            scores = score_rows(queries[own], sides.images(crop), self.statistic.score)
            chosen = torch.where((scores > best)[:, None, None, None], crop, chosen)
            best = torch.maximum(scores, best)
        return chosen.view_as(candidates)
