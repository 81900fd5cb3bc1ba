"""Public images named in each encoding and taken out; what is left are its private ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.lift import expected
from leakgauge.attacks.encodings.algebra.whitening import AsPublished, Laplacian, Squares, centred, uncentred
from leakgauge.attacks.encodings.base import EncodingAttack, public_of
from leakgauge.attacks.encodings.search.crops import AlignedSearch
from leakgauge.attacks.encodings.search.phase_retrieval import PhaseRetrieval
from leakgauge.attacks.encodings.search.public_search import PublicPursuit, Pursuit, remainder
from leakgauge.attacks.encodings.search.statistics import Correlation
from leakgauge.encodings.crops import Cropping
from leakgauge.errors import MissingKnowledge
from leakgauge.progress import Progress, silent
from leakgauge.protocol.encoding import EncodingObservation
from leakgauge.types import Decoding, Outcome, Reconstruction


@final
@dataclass(frozen=True)
class PublicRemoval(EncodingAttack):
    """Names public images that were mixed in as they are: ``masked`` behind a mask, ``plain`` without one."""

    by_encoding: ClassVar[bool] = True

    masked: PhaseRetrieval = field(default_factory=PhaseRetrieval)
    plain: PublicPursuit = field(default_factory=PublicPursuit)

    def __call__(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        public, encodings = _public_mixed_in(observation, self), observation.encoded.images
        if observation.signed:
            found = self.masked(observation, generator=generator, progress=progress)
            return _reconstruction(observation, found.private, found.indices, found.coefficients, found.unmasked)
        pursuit = self.plain(observation, generator=generator, progress=progress)
        return _reconstruction(observation, remainder(encodings, public, pursuit), *pursuit, encodings)


@final
@dataclass(frozen=True)
class AlignedRemoval(EncodingAttack):
    """The same for public images that were cropped and mirrored at random: every alignment of each is tried.

    Under a mask squares are compared, whose shares are lam^2, and the signs are those of what was found.
    """

    by_encoding: ClassVar[bool] = True

    cropping: Cropping = field(default_factory=Cropping)

    @property
    def alignment(self) -> str:
        return f"of public images searched, {len(self.cropping.places)} crops of each; assumed of private ones"

    def __call__(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        public, encodings = _public_mixed_in(observation, self), observation.encoded.images
        members = observation.k - observation.private_per_encoding
        statistic = Correlation(Laplacian(), Squares() if observation.signed else AsPublished())
        search = AlignedSearch(statistic, self.cropping, most=members)
        indices = search(observation, generator=generator, progress=progress).indices
        sides = statistic.fit(observation, generator=generator)
        crops = search.best_crops(encodings, public[indices], sides)
        taken = sides.images(crops.flatten(0, 1)).unflatten(0, indices.shape).mT
        shares = torch.linalg.lstsq(taken, sides.encodings(encodings)[:, :, None]).solution[:, :, 0].clamp_min(0)
        demasked = encodings
        if observation.signed:
            shares = shares.sqrt()
            mixtures = torch.einsum("qa,qad->qd", shares, centred(crops).flatten(2))
            demasked = uncentred(expected(mixtures, centred(encodings).abs().flatten(1))).view_as(encodings)
        rows = torch.arange(indices.numel()).view_as(indices)
        left = remainder(demasked, crops.flatten(0, 1), Pursuit(rows, shares))
        return _reconstruction(observation, left, indices, shares, demasked)


def _public_mixed_in(observation: EncodingObservation, who: object) -> Tensor:
    """The public set, if there is any of it in the encodings."""
    if observation.k == observation.private_per_encoding:
        raise MissingKnowledge("There are no public images to name in these encodings; use the attack `clustering`.")
    return public_of(observation, who)


def _reconstruction(
    observation: EncodingObservation, left: Tensor, public: Tensor, coefficients: Tensor, demasked: Tensor
) -> Reconstruction:
    decoding = Decoding(coefficients, observation.encoded.images, demasked, public)
    return Reconstruction(left, None, Outcome.SOLVED, decoding=decoding)
