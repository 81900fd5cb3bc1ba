"""Public images that were cropped at random before they were mixed, and the search that tries every alignment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

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
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.encoding import EncodingObservation


@dataclass(frozen=True)
class Cropping:
    """A crop of the image's own size at a random place of the image extended by reflection, half of them mirrored."""

    margin: int = 4
    mirror: bool = True

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise InvalidCase(f"Cropping(margin=...) must be at least 0, got {self.margin}; it is in pixels.")

    def __call__(self, images: Tensor, *, generator: Generator) -> Tensor:
        """One crop of each image."""
        places = self.places
        chosen = torch.randint(len(places), (len(images),), generator=generator).tolist()
        wide = self._extend(images)
        size = (images.shape[2], images.shape[3])
        return torch.stack([_cut(wide[row], places[place], size) for row, place in enumerate(chosen)])

    def every(self, images: Tensor) -> Iterator[Tensor]:
        """All images at the first place, then all at the second, and so on."""
        wide = self._extend(images)
        for place in self.places:
            yield _cut(wide, place, (images.shape[2], images.shape[3]))

    @property
    def places(self) -> list[tuple[int, int, bool]]:
        """Every row, column and mirroring that a crop may have."""
        steps = range(2 * self.margin + 1)
        return [(row, column, flip) for flip in (False, True)[: 1 + self.mirror] for row in steps for column in steps]

    def _extend(self, images: Tensor) -> Tensor:
        if self.margin >= min(images.shape[2:]):
            raise InvalidCase(f"A margin of {self.margin} exceeds images of {tuple(images.shape[2:])}; lower it.")
        return pad(images, (self.margin,) * 4, mode="reflect") if self.margin else images


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


def _cut(wide: Tensor, place: tuple[int, int, bool], size: tuple[int, int]) -> Tensor:
    row, column, mirrored = place
    cut = wide[..., row : row + size[0], column : column + size[1]]
    return cut.flip(-1) if mirrored else cut
