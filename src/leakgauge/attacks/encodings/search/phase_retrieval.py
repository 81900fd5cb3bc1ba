"""Public images and the mask found in turn: each image found tells signs, and each sign helps to find images.

No network is trained: all that is used of the auxiliary images is their mean and covariance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.whitening import Whitener, centred, uncentred, whitener
from leakgauge.attacks.encodings.base import auxiliary_of, public_of
from leakgauge.attacks.encodings.search.public_search import PublicImageAttack, Pursuit, pursue, remainder
from leakgauge.attacks.encodings.search.statistics import Statistic, blocks, top_matches, whitened_squares
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.encoding import EncodingObservation

_QUERIES = 256
_FIRST_SHARE = 0.4
"""The share assumed for the image found first, which is nearly always the largest."""
_LEAST_SHARE, _MOST_SHARES = 0.02, 0.9


class Retrieval(NamedTuple):
    """Public images and their shares, encodings without their mask, and what is left for the private images."""

    indices: Tensor
    coefficients: Tensor
    unmasked: Tensor
    private: Tensor


class GaussianImages(NamedTuple):
    """Images as a Gaussian family: what the other pixels of an image say about each of them."""

    mean: Tensor
    variance: Tensor
    precision: Tensor

    @classmethod
    def of(cls, whiten: Whitener, images: Tensor) -> GaussianImages:
        rows = centred(images).flatten(1)
        return cls(whiten.mean, rows.var(dim=0), torch.cholesky_inverse(whiten.factor.double()).to(rows))

    def guess_signs(self, magnitudes: Tensor, expected: Tensor, scale: Tensor, *, steps: int, trust: float) -> Tensor:
        """The mean-field estimate of pixels ~ N(expected, scale * C) of which only the magnitudes are known.

        Given all others, pixel i is N(m_i, v_i), v_i = scale / P_ii and m_i = z_i - (P (z - expected))_i / P_ii, so its
        mean given |z_i| is |z_i| tanh(|z_i| m_i / v_i). Estimates of neighbours are not independent, hence a
        ``trust`` below one in the exponent; half of each step is taken.
        """
        # A pixel in which all auxiliary images agree says nothing about a sign, nor may it divide by zero.
        variance = scale * self.variance.clamp(min=1e-6)
        pixels = magnitudes * torch.tanh(magnitudes * expected / variance)
        own = self.precision.diagonal()
        for _ in range(steps):
            mean = pixels - (pixels - expected) @ self.precision / own
            believed = magnitudes * torch.tanh(trust * magnitudes * mean * own / scale)
            pixels = (pixels + believed) / 2
        return pixels


@final
@dataclass(frozen=True)
class PhaseRetrieval(PublicImageAttack[Retrieval]):
    """Alternates signs and matching pursuit, from the one image that squares name surely; needs no demasker.

    In each of ``sweeps`` rounds the images found so far give the mean of the mixture and the auxiliary covariance what
    is left; `GaussianImages.guess_signs` makes signs of them, and the pursuit explains the result by one image more, up
    to as many as are public. The default trust is the best on mixtures of CIFAR-100, of 0.15, 0.3, 0.5 and 0.8.
    """

    start: Statistic = field(default_factory=whitened_squares)
    ridge: float = 4e-3
    sweeps: int = 5
    steps: int = 15
    trust: float = 0.5
    block: int = 4096

    def __post_init__(self) -> None:
        if self.sweeps < 1 or self.steps < 0 or not 0 < self.trust <= 1:
            raise InvalidCase(
                f"PhaseRetrieval needs sweeps >= 1, steps >= 0 and 0 < trust <= 1, got {self.sweeps}, {self.steps} and "
                f"{self.trust}; correct them."
            )

    def prepare(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Callable[[Tensor], Retrieval]:
        public, auxiliary = public_of(observation, self), auxiliary_of(observation, self)
        if observation.k == observation.private_per_encoding:
            raise InvalidCase("There are no public images in these encodings; attack them by clustering.")
        whiten = whitener(centred(auxiliary).flatten(1), self.ridge)
        family = GaussianImages.of(whiten, auxiliary)
        sides = self.start.fit(observation, generator=generator)
        first = [sides.images(part) for part in blocks(public, self.block)]
        rows = [whiten(centred(part).flatten(1)) for part in blocks(public, self.block)]

        def find(encodings: Tensor) -> Retrieval:
            parts: list[Retrieval] = []
            for part in encodings.split(_QUERIES):
                begin = top_matches(sides.encodings(part), first, most=1, score=self.start.score).indices
                parts.append(self._alternate(part, begin, observation, family, whiten, rows, public))
                progress(Tick(len(parts), min(1.0, len(parts) * _QUERIES / len(encodings)), float("nan")))
            return Retrieval(*(torch.cat(values) for values in zip(*parts)))

        return find

    def _alternate(
        self,
        encodings: Tensor,
        begin: Tensor,
        observation: EncodingObservation,
        family: GaussianImages,
        whiten: Whitener,
        rows: Iterable[Tensor],
        public: Tensor,
    ) -> Retrieval:
        magnitudes = centred(encodings).flatten(1).abs()
        found = Pursuit(begin, torch.full(begin.shape, _FIRST_SHARE).to(magnitudes))
        atoms = observation.k - observation.private_per_encoding
        for _ in range(self.sweeps):
            pixels = self._guess_signs(magnitudes, found, observation.k, family, public)
            found = pursue(whiten(pixels), rows, atoms=min(atoms, found.indices.shape[1] + 1))
            found = found._replace(coefficients=_shares(found.coefficients))
        unmasked = uncentred(self._guess_signs(magnitudes, found, observation.k, family, public)).view_as(encodings)
        return Retrieval(*found, unmasked, remainder(unmasked, public, found))

    def _guess_signs(
        self, magnitudes: Tensor, found: Pursuit, k: int, family: GaussianImages, public: Tensor
    ) -> Tensor:
        """The signs that the images found and the family of the others suggest."""
        known = centred(public[found.indices]).flatten(2)
        left = 1 - found.coefficients.sum(dim=1, keepdim=True)
        expected = torch.einsum("qa,qad->qd", found.coefficients, known) + left * family.mean
        # What is left are k - a images in equal shares, as far as one knows.
        scale = left.square() / (k - found.indices.shape[1])
        return family.guess_signs(magnitudes, expected, scale, steps=self.steps, trust=self.trust)


def _shares(coefficients: Tensor) -> Tensor:
    """Coefficients as shares of images: positive, and leaving something for the private ones."""
    positive = coefficients.clamp(min=_LEAST_SHARE)
    return positive * (_MOST_SHARES / positive.sum(dim=1, keepdim=True).clamp(min=_MOST_SHARES))
