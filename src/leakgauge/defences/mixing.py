"""Training on mixtures of one's own images."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import CENTRE, Encoding, Mixing
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import UpdateTransform
from leakgauge.types import Batch, ModelState, ParamTree

_DRAWS = 1000
"""Tries after which a bound on the coefficients counts as out of reach."""


@dataclass(frozen=True)
class Mixer(UpdateTransform):
    """Encodings that mix each image with k - 1 others of the client's own, drawn anew for every update.

    The others are of the batch; where it has fewer than k images, of the client's further images as well
    (`Batch.others`). What is sent is then the update of as many encodings as the batch has images.
    """

    mixes: ClassVar[bool] = True

    k: int = 4
    largest: float = 0.65

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InvalidCase(f"{self._name}(k=...) must be at least 1, got {self.k}; it is how many images are mixed.")
        if not (1 / self.k < self.largest <= 1 or self.k == self.largest == 1):
            raise InvalidCase(
                f"{self._name}(largest=...) must lie above 1/k = {1 / self.k:.3g} and be at most 1, got {self.largest};"
                " the coefficients sum to 1."
            )

    @abstractmethod
    def mask(self, images: Tensor, *, generator: Generator) -> Tensor:
        """What is done to the mixtures."""

    def mix(self, batch: Batch, *, classes: int, generator: Generator) -> Encoding:
        """The batch's encodings with their class probabilities, and how they were mixed."""
        count, batch = len(batch), self._enough(batch)
        if self.k == 1:
            return Encoding(Batch(self.mask(batch.images, generator=generator), batch.labels), self._alone(batch))
        mixing = self.draw(count, len(batch), generator=generator)
        mixing = mixing._replace(
            coefficients=mixing.coefficients.to(batch.images), indices=mixing.indices.to(batch.images.device)
        )
        labels = batch.labels if batch.labels.ndim == 2 else one_hot(batch.labels.long(), classes)
        images = self.mask(mixing.mix(batch.images), generator=generator)
        return Encoding(Batch(images, mixing.mix(labels.to(batch.images))), mixing)

    def draw(self, num_examples: int, among: int | None = None, *, generator: Generator) -> Mixing:
        """k distinct images for each encoding, its own first, and coefficients ~ Dirichlet(3, 1, ..., 1) | max <= c."""
        order = torch.rand(num_examples, among or num_examples, generator=generator).fill_diagonal_(2.0)
        coefficients = torch.full((num_examples, self.k), math.inf, dtype=torch.float64)
        for _ in range(_DRAWS):
            refused = coefficients.amax(dim=1) > self.largest
            if not bool(refused.any()):
                return Mixing(coefficients, order.topk(self.k, dim=1).indices, self.flips_signs)
            # Normalised Gamma variables; Gamma(3) is the sum of three exponential ones.
            waits = -torch.rand(num_examples, self.k + 2, generator=generator, dtype=torch.float64).log()
            gammas = torch.cat([waits[:, :3].sum(dim=1, keepdim=True), waits[:, 3:]], dim=1)
            coefficients[refused] = (gammas / gammas.sum(dim=1, keepdim=True))[refused]
        raise InvalidCase(
            f"{self._name}(k={self.k}, largest={self.largest}) leaves hardly any coefficients to choose from; raise "
            "`largest`."
        )

    def encode(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Encoding:
        _, channels, height, width = batch.images.shape
        classes = learner.num_classes(state, (channels, height, width))
        return self.mix(batch, classes=classes, generator=generator)

    def transform(self, params: ParamTree, *, generator: Generator) -> ParamTree:
        del generator
        return params

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        del observed
        return params

    def _enough(self, batch: Batch) -> Batch:
        """The batch, followed by the client's other images if it is too small to mix k."""
        if self.k <= len(batch):
            return batch
        others = batch.others
        if others is None or self.k > len(batch) + len(others):
            raise InvalidCase(
                f"{self._name}(k={self.k}) mixes {self.k} images of the client's own, which has "
                f"{len(batch) + (0 if others is None else len(others))}; lower k or raise the batch size."
            )
        return Batch(torch.cat([batch.images, others.images]), torch.cat([batch.labels, others.labels]))

    def _alone(self, batch: Batch) -> Mixing:
        each = torch.arange(len(batch), device=batch.images.device)[:, None]
        return Mixing(torch.ones_like(each, dtype=batch.images.dtype), each, self.flips_signs)

    @property
    def _name(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class MixUp(Mixer):
    """Train on x~ = sum_j lam_j x_j with labels sum_j lam_j y_j [Zhang et al., 2018; Huang et al., 2021, intra].

    Each encoding mixes k images of the batch, lam ~ Dirichlet(3, 1, ..., 1) drawn until max lam <= ``largest``. The
    mixing is linear, so whoever inverts to enough encodings and knows it solves for the images.
    """

    def mask(self, images: Tensor, *, generator: Generator) -> Tensor:
        del generator
        return images


@dataclass(frozen=True)
class InstaHide(Mixer):
    """MixUp, then a random sign for every pixel and channel of x~ - 1/2 [Huang et al., 2020; intra].

    Pixels lie in [0, 1] and their sign is taken around the centre, so a flipped pixel is 1 - x and encodings are
    images too. ``flip`` is the chance of a flip; at 0 this is MixUp.
    """

    flips_signs: ClassVar[bool] = True

    flip: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.flip <= 1:
            raise InvalidCase(f"InstaHide(flip=...) must lie in [0, 1], got {self.flip}; it is a probability.")

    def mask(self, images: Tensor, *, generator: Generator) -> Tensor:
        flipped = (torch.rand(images.shape, generator=generator) < self.flip).to(images.device)
        return torch.where(flipped, 2 * CENTRE - images, images)
