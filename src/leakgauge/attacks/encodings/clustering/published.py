"""The published clustering attack, without its trained networks: what our reconstruction is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from leakgauge.attacks.encodings.algebra.lift import residuals
from leakgauge.attacks.encodings.base import EncodingAttack
from leakgauge.attacks.encodings.clustering.assignment import PRESENT, flow
from leakgauge.attacks.encodings.clustering.attack import (
    decode,
    knowledge,
    magnitudes,
    private_classes,
    with_signs,
)
from leakgauge.attacks.encodings.clustering.clusters import PairSimilarity, grow_clusters
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.encoding import EncodingObservation
from leakgauge.types import Outcome, Reconstruction

_START = 0.05
_SLACK = 1.1


@final
@dataclass(frozen=True)
class PublishedRecipe(EncodingAttack):
    """Greedy clusters, minimum-cost flow, then Adam on |E|, after Carlini et al. [2021, sections 4.1 to 4.4].

    min over P of mean (|E| - |lam P|)^2 + contrast * mean (1 - |P|). Four departures, without which it recovers nothing
    here even from the true mixing. Each pixel is a problem of its own, full of minima at wrong signs, so it is begun
    ``starts`` times and the best is kept; P starts from small noise, since at zero the loss has no gradient; the
    contrast fades, so that it moves no minimum; and the sign of each pixel, which the loss leaves open, is that of its
    neighbours (`with_signs`). The similarity is a formula where the paper trains a network on a GPU. A class's weight
    is shared equally by its images in an encoding.
    """

    similarity: PairSimilarity = field(default_factory=PairSimilarity)
    steps: int = 300
    learning_rate: float = 0.02
    contrast: float = 0.05
    starts: int = 8

    def __post_init__(self) -> None:
        if self.steps < 1 or self.starts < 1 or not self.learning_rate > 0:
            raise InvalidCase(
                "PublishedRecipe needs steps >= 1, starts >= 1 and learning_rate > 0, got "
                f"{self.steps}, {self.starts} and {self.learning_rate}."
            )

    def __call__(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        count, own = len(private_classes(observation)), observation.private_per_encoding
        labels = observation.encoded.labels
        similarity = self.similarity(observation, generator=generator)
        share = max(2, len(labels) * own // count)
        clusters = grow_clusters(similarity, count, share, generator=generator)
        if not len(clusters):
            clusters = torch.stack([row.topk(min(share, len(row))).indices for row in similarity[:count]])
        classes = _majority(clusters[:, : max(1, share // 5)], labels)
        start = _assign(similarity, clusters, classes, labels, own)
        return self.from_assignment(observation, start, classes, generator=generator, progress=progress)

    def from_assignment(
        self,
        observation: EncodingObservation,
        start: Tensor,
        classes: Tensor,
        *,
        generator: Generator,
        progress: Progress = silent,
    ) -> Reconstruction:
        """The second half alone: from coefficients, t x n, and the class of each image."""
        sizes = magnitudes(observation)
        coefficients = start.to(sizes)
        pictures, trace = self._optimise(coefficients, sizes, generator, progress)
        images = with_signs(observation, pictures)
        facts: dict[str, str | int | float] = {
            **knowledge(observation),
            "private images": len(images),
            "residual": float(residuals(coefficients, sizes, pictures).mean()),
        }
        found = decode(observation, images, coefficients)
        return Reconstruction(images, classes, Outcome.STEPS_EXHAUSTED, torch.tensor(trace), facts, found)

    def _optimise(
        self, coefficients: Tensor, sizes: Tensor, generator: Generator, progress: Progress
    ) -> tuple[Tensor, list[float]]:
        """The best of all starts for every pixel, and the error of the best start at each of its steps."""
        best, errors, traces = sizes.new_empty(0), sizes.new_full(sizes.shape[1:], torch.inf), []
        for number in range(self.starts):
            pictures, trace = self._descend(coefficients, sizes, generator, progress, number)
            found = residuals(coefficients, sizes, pictures).mean(dim=0)
            best = pictures if number == 0 else torch.where(found < errors, pictures, best)
            errors = torch.minimum(found, errors)
            traces.append(trace)
        return best, min(traces, key=lambda trace: trace[-1])

    def _descend(
        self, coefficients: Tensor, sizes: Tensor, generator: Generator, progress: Progress, number: int
    ) -> tuple[Tensor, list[float]]:
        shape = (coefficients.shape[1], sizes.shape[1])
        pictures = (_START * torch.randn(shape, generator=generator)).to(sizes).requires_grad_()
        optimiser = torch.optim.Adam([pictures], lr=self.learning_rate)
        trace, all_steps = [], self.starts * self.steps
        for step in range(self.steps):
            fit = residuals(coefficients, sizes, pictures).mean()
            contrast = self.contrast * (1 - (step + 1) / self.steps)
            loss = fit + contrast * (1 - pictures.abs()).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            trace.append(float(fit.detach()))
            done = number * self.steps + step + 1
            progress(Tick(done, done / all_steps, trace[-1]))
        return pictures.detach(), trace


def _majority(core: Tensor, labels: Tensor) -> Tensor:
    """The class that most of a cluster's first members have."""
    return (labels[core] > PRESENT).sum(dim=1).argmax(dim=1)


def _assign(similarity: Tensor, clusters: Tensor, classes: Tensor, labels: Tensor, own: int) -> Tensor:
    """Coefficients t x n by minimum-cost flow; an image whose class the label does not name costs most."""
    count = len(labels)
    core = one_hot(clusters[:, : max(1, clusters.shape[1] // 2)], count).sum(dim=1).to(similarity)
    fitting = labels[:, classes] > PRESENT
    scores = similarity @ core.T / core.sum(dim=1)
    costs = -scores + (~fitting).to(scores) * 1e3
    wanted = torch.full((count,), min(own, len(classes)))
    capacity = torch.full((len(classes),), math.ceil(_SLACK * count * own / len(classes)))
    chosen = flow(costs, wanted, capacity) & fitting
    together = chosen.to(labels) @ one_hot(classes, labels.shape[1]).to(labels)
    return torch.where(chosen, labels[:, classes] / together[:, classes].clamp_min(1), 0.0)
