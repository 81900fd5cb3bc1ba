"""Training on mixtures of one's own images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, final

import torch
from torch import Generator, Tensor

from leakgauge.encodings.draws import anchored, check_bound, draw_bounded
from leakgauge.encodings.keys import SeededKeys
from leakgauge.encodings.public_patches import read_public
from leakgauge.encodings.schemes import CrossDataset, Mixup, apply, check_images, class_weights
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import CENTRE, Encoding, Mixing
from leakgauge.protocol.learner import Learner, probe_of
from leakgauge.protocol.local_update import UpdateTransform
from leakgauge.types import Batch, ModelState, ParamTree


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
        check_bound(self._name, self.k, self.largest)

    @abstractmethod
    def mask(self, images: Tensor, *, generator: Generator) -> Tensor:
        """What is done to the mixtures."""

    def mix(self, batch: Batch, *, classes: int, generator: Generator) -> Encoding:
        """The batch's encodings with their class probabilities, and how they were mixed."""
        count, batch = len(batch), self._enough(batch)
        if self.k == 1:
            each = torch.arange(count, device=batch.inputs.device)[:, None]
            alone = Mixing(torch.ones_like(each, dtype=batch.inputs.dtype), each, self.flips_signs)
            return Encoding(Batch(self.mask(batch.inputs, generator=generator), batch.labels), alone)
        mixing = self.draw(count, len(batch), generator=generator)
        mixing = mixing._replace(
            coefficients=mixing.coefficients.to(batch.inputs), indices=mixing.indices.to(batch.inputs.device)
        )
        labels = class_weights(batch.labels, classes)
        images = self.mask(mixing.mix(batch.inputs), generator=generator)
        return Encoding(Batch(images, mixing.mix(labels.to(batch.inputs))), mixing)

    def draw(self, num_examples: int, among: int | None = None, *, generator: Generator) -> Mixing:
        """k distinct images for each encoding, its own first, and coefficients ~ Dirichlet(3, 1, ..., 1) | max <= c."""
        order = torch.rand(num_examples, among or num_examples, generator=generator).fill_diagonal_(2.0)
        draws = SeededKeys(generator).uniform
        coefficients = draw_bounded(anchored, draws, num_examples, self.k, largest=self.largest)
        return Mixing(coefficients, order.topk(self.k, dim=1).indices, self.flips_signs)

    def encode(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Encoding:
        if self.flips_signs and batch.inputs.ndim != 4:
            raise InvalidCase(f"{self._name} masks the pixels of images, and these are none; mix without a mask.")
        classes = learner.num_classes(state, probe_of(batch.inputs))
        return self.mix(batch, classes=classes, generator=generator)

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
        return Batch(torch.cat([batch.inputs, others.inputs]), torch.cat([batch.labels, others.labels]))

    @property
    def _name(self) -> str:
        return type(self).__name__


@final
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
class MaskedMixer(Mixer, ABC):
    """Mixtures of which each pixel is reflected at the centre with the chance ``flip``; at 0 this is MixUp.

    Pixels lie in [0, 1] and their sign is taken around the centre, so a flipped pixel is 1 - x and encodings are
    images too.
    """

    flips_signs: ClassVar[bool] = True

    flip: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.flip <= 1:
            raise InvalidCase(f"{self._name}(flip=...) must lie in [0, 1], got {self.flip}; it is a probability.")

    def mask(self, images: Tensor, *, generator: Generator) -> Tensor:
        flipped = (torch.rand(images.shape, generator=generator) < self.flip).to(images.device)
        return torch.where(flipped, 2 * CENTRE - images, images)


@final
@dataclass(frozen=True)
class InstaHide(MaskedMixer):
    """MixUp, then a random sign for every pixel and channel of x~ - 1/2 [Huang et al., 2020; intra]."""


@final
@dataclass(frozen=True)
class CrossInstaHide(MaskedMixer):
    """InstaHide of ``private`` images of the batch and k - private of a public set [Huang et al., 2020, section 3.2].

    ``public`` is a file of `leakgauge instahide public`. Coefficients are uniform, normalised and drawn until the
    private ones sum to ``least_private``; labels hold only those. With k <= private nothing public is mixed in.
    """

    public: str = ""
    private: int = 2
    least_private: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.private < 1:
            raise InvalidCase(f"{self._name}(private=...) must be at least 1, got {self.private}.")
        if self.private < self.k:
            self._scheme()

    def mix(self, batch: Batch, *, classes: int, generator: Generator) -> Encoding:
        if self.k <= self.private:
            return super().mix(batch, classes=classes, generator=generator)
        if not self.public:
            raise InvalidCase(f"{self._name} mixes in public images; name their file in its option `public`.")
        public, keys = _public_images(self.public).to(batch.inputs), SeededKeys(generator)
        check_images(batch.inputs, public)
        mixing = self._scheme().draw(len(batch), len(public), keys=keys)
        unmasked = Mixup(self.k, self.largest, public=self.k - self.private)
        mixed, _ = apply(unmasked, mixing, batch, classes=classes, public=public, keys=keys)
        images = self.mask(mixed.images, generator=generator)
        coefficients, indices = mixing.coefficients[:, : self.private], mixing.indices[:, : self.private]
        # Of what is public, nobody is told how it was mixed.
        own = Mixing(coefficients.to(images), indices.to(images.device), self.flips_signs)
        return Encoding(Batch(images, mixed.labels), own)

    def _scheme(self) -> CrossDataset:
        return CrossDataset(self.k, self.largest, self.private, self.least_private)


@lru_cache(maxsize=1)
def _public_images(file: str) -> Tensor:
    return read_public(Path(file))
