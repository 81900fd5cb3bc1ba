"""Similarity search for public images: by structural similarity, and by a score that is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, cross_entropy

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.encodings.algebra.whitening import Magnitudes, View, centred, unit
from leakgauge.attacks.encodings.base import public_of
from leakgauge.attacks.encodings.search.public_search import PublicImageAttack
from leakgauge.attacks.encodings.search.statistics import Ranking, Score, Sides, without_own
from leakgauge.attacks.encodings.simulation import mixtures, train_network
from leakgauge.encodings.crops import Cropping
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.encoding import EncodingObservation
from leakgauge.randomness import global_stream
from leakgauge.structural_similarity import Windows, similarity, windows

_BLOCK, _PAIRS = 512, 64


@final
@dataclass(frozen=True)
class StructuralSearch(PublicImageAttack[Ranking]):
    """Ranks the public images for every encoding by SSIM [Wang et al., 2004], as Huang et al. [2020, Figure 8]."""

    view: View = field(default_factory=Magnitudes)
    most: int = 100

    def prepare(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Callable[[Tensor], Ranking]:
        del generator
        public = self.view.images(public_of(observation, self))
        known, most = windows(public), min(self.most, len(public))
        return lambda encodings: structurally_nearest(self.view.encodings(encodings), known, most, progress=progress)


def structurally_nearest(queries: Tensor, known: Windows, most: int, *, progress: Progress = silent) -> Ranking:
    """The ``most`` candidates that are most similar to each query by SSIM."""
    asked = windows(queries)
    best: list[tuple[Tensor, Tensor]] = []
    for number in range(len(queries)):
        query = asked.part(number, number + 1)
        starts = range(0, len(known.pixels), _PAIRS)
        scores = torch.cat([similarity(known.part(start, start + _PAIRS), query) for start in starts])
        top = scores.topk(most)
        best.append((top.indices, top.values))
        progress(Tick(number + 1, (number + 1) / len(queries), float("nan")))
    return Ranking(torch.stack([indices for indices, _ in best]), torch.stack([values for _, values in best]))


def structurally_similar(encodings: Tensor, queries: Tensor, neighbours: int) -> Tensor:
    """The encodings nearest by SSIM to those numbered ``queries``, for `AverageOfNearest`: queries x neighbours."""
    known = windows(encodings)
    return without_own(structurally_nearest(encodings[queries], known, neighbours + 1).indices, queries)


class Tower(nn.Module):
    """Rows of length one from images: three convolutions at full, half and quarter size, pooled to a small grid."""

    def __init__(self, channels: int, widths: tuple[int, int, int], grid: int) -> None:
        super().__init__()
        self.grid = grid
        layers: list[nn.Module] = []
        for stride, incoming, outgoing in zip((1, 2, 2), (channels, *widths), widths):
            layers += [nn.Conv2d(incoming, outgoing, 3, stride, 1, bias=False), nn.BatchNorm2d(outgoing), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(widths[-1], widths[-1], 3, padding=1))

    def forward(self, pixels: Tensor) -> Tensor:
        rows = adaptive_avg_pool2d(self.layers(pixels), self.grid).flatten(1)
        return unit(rows - rows.mean(dim=1, keepdim=True))


@dataclass(frozen=True)
class LearnedSimilarity:
    """The cosine of what one network makes of an encoding and of a candidate; a `Statistic`, already fitted."""

    network: Tower = field(repr=False)
    view: View = field(default_factory=Magnitudes)
    steps: int = 0

    score: ClassVar[Score] = "inner"

    def fit(self, observation: EncodingObservation, *, generator: Generator) -> Sides:
        del observation, generator
        return Sides(
            lambda encodings: self._rows(self.view.encodings(encodings)),
            lambda images: self._rows(self.view.images(images)),
        )

    def _rows(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([self.network(centred(block)) for block in images.split(_BLOCK)])


@dataclass(frozen=True)
class SimilarityTraining:
    """Trains a Siamese network by InfoNCE [van den Oord et al., 2018]: which image of the batch is in this encoding?

    Encodings are mixtures of auxiliary images, each asked for one of its images, drawn by its share; with a
    ``cropping`` the images were cropped before they were mixed, and the network sees the whole ones. ``grid`` squares
    the network's map is pooled to: few, and it learns to look past alignment.
    """

    widths: tuple[int, int, int] = (32, 64, 64)
    grid: int = 8
    view: View = field(default_factory=Magnitudes)
    cropping: Cropping | None = None
    budget: Budget = field(default_factory=lambda: Budget(seconds=100.0))
    batch_size: int = 64
    learning_rate: float = 2e-3
    temperature: float = 0.1

    def __post_init__(self) -> None:
        if self.batch_size < 2 or not self.learning_rate > 0 or not self.temperature > 0 or self.grid < 1:
            raise InvalidCase(
                "SimilarityTraining needs a batch size of 2, a grid of 1 and a positive learning rate and temperature; "
                f"got {self.batch_size}, {self.grid}, {self.learning_rate} and {self.temperature}."
            )

    def __call__(
        self, auxiliary: Tensor, k: int, *, generator: Generator, progress: Progress = silent
    ) -> LearnedSimilarity:
        with global_stream(generator):
            network = Tower(auxiliary.shape[1], self.widths, self.grid).to(auxiliary)
        steps = train_network(
            network,
            lambda: self._loss(network, auxiliary, k, generator),
            self.budget,
            self.learning_rate,
            progress,
        )
        return LearnedSimilarity(network, self.view, steps)

    def _loss(self, network: Tower, auxiliary: Tensor, k: int, generator: Generator) -> Tensor:
        # Drawn from a few more images than are mixed, so that one crop of each is made and few are mixed twice.
        pool = auxiliary[torch.randperm(len(auxiliary), generator=generator)[: 4 * k * self.batch_size]]
        used = pool if self.cropping is None else self.cropping(pool, generator=generator)
        mixed = mixtures(used, k, self.batch_size, generator=generator)
        asked = mixed.coefficients.multinomial(1, generator=generator)
        wanted = mixed.indices.gather(1, asked)[:, 0]
        # Both sides in one pass, so that batch statistics are those of both.
        both = torch.cat([self.view.encodings(mixed.images), self.view.images(pool[wanted])])
        encodings, images = network(centred(both)).chunk(2)
        scores = encodings @ images.mT / self.temperature
        # An image that is in an encoding too, but was not asked for, is no counterexample.
        present = (mixed.indices[:, :, None] == wanted).any(dim=1).fill_diagonal_(False)
        own = torch.arange(self.batch_size)
        masked = scores.masked_fill(present, -torch.inf)
        return (cross_entropy(masked, own) + cross_entropy(masked.mT, own)) / 2
