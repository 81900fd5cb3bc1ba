"""Averaging encryptions of one image: what it is mixed with differs each time and averages out."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from leakgauge.attacks.encodings.algebra.whitening import AsPublished, Features, View, Whitened
from leakgauge.attacks.encodings.base import auxiliary_of
from leakgauge.attacks.encodings.search.statistics import blocks, top_matches, without_own
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import EncodingObservation
from leakgauge.types import Outcome, Reconstruction


@dataclass(frozen=True)
class AverageOfKnownSets:
    """The stronger attacker of Huang et al. [2020, section 5.3], who knows which encodings encrypt the same image.

    x = m + sum_t w_t (x~_t - m) / sum_t w_t^2 over an image's encodings, m the mean of all and w_t the image's
    share: its label weight in x~_t with ``weighted``, else 1/k throughout. ``contrast=False`` is the published plain
    average of the encodings.
    """

    view: View = field(default_factory=AsPublished)
    weighted: bool = True
    contrast: bool = True

    def __call__(self, observation: EncodingObservation, *, sets: Tensor) -> Reconstruction:
        """``sets``: for each encoding the number 0 .. n - 1 of the image that it is known to encrypt."""
        encoded = observation.encoded
        if sets.shape != (len(encoded),):
            raise InvalidCase(
                f"{len(encoded)} encodings need the number of their image each, got {tuple(sets.shape)}; pass `sets`."
            )
        seen = self.view.encodings(encoded.images)
        count = int(sets.max()) + 1
        belongs = torch.nn.functional.one_hot(sets, count).to(seen).mT
        if not self.contrast:
            means = torch.tensordot(belongs / belongs.sum(dim=1, keepdim=True), seen, dims=1)
            return Reconstruction(means.clamp(0, 1), None, Outcome.SOLVED)
        shares = belongs * self._shares(observation, sets, count)
        mean = seen.mean(dim=0)
        scale = shares.square().sum(dim=1, keepdim=True).clamp(min=torch.finfo(seen.dtype).tiny)
        return Reconstruction(
            (mean + torch.tensordot(shares / scale, seen - mean, dims=1)).clamp(0, 1), None, Outcome.SOLVED
        )

    def _shares(self, observation: EncodingObservation, sets: Tensor, count: int) -> Tensor:
        """One share for each encoding: the label weight of the class that an image's encodings have most of."""
        encoded = observation.encoded
        if not self.weighted:
            return encoded.labels.new_full((len(encoded),), 1 / observation.k)
        totals = encoded.labels.new_zeros(count, encoded.labels.shape[1]).index_add_(0, sets, encoded.labels)
        own = totals.argmax(dim=1)[sets]
        return encoded.labels.gather(1, own[:, None])[:, 0]


@dataclass(frozen=True)
class AverageOfNearest:
    """The weaker attacker, who averages an encoding with the ``neighbours`` most similar ones [section 5.3].

    x = m + (mean of those encodings - m) / w, m the mean of all and w = 2 / (k + 1), about the largest of k shares:
    what is similar shares the image that it has most of. ``contrast=False`` is the published plain average. Neighbours
    found otherwise than by `similar`, say by SSIM, can be given.
    """

    view: View = field(default_factory=AsPublished)
    features: Features = field(default_factory=Whitened)
    neighbours: int = 5
    contrast: bool = True

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise InvalidCase(f"AverageOfNearest(neighbours=...) must be at least 1, got {self.neighbours}.")

    def similar(self, observation: EncodingObservation, queries: Tensor) -> Tensor:
        """The numbers of the encodings nearest to the encodings numbered ``queries``: queries x neighbours."""
        mapped = self.features.fit(self.view.images(auxiliary_of(observation, self)))
        rows = mapped(self.view.encodings(observation.encoded.images))
        return without_own(top_matches(rows[queries], blocks(rows), most=self.neighbours + 1).indices, queries)

    def __call__(
        self, observation: EncodingObservation, *, queries: Tensor, nearest: Tensor | None = None
    ) -> Reconstruction:
        """One estimate for each of the encodings numbered ``queries``."""
        if nearest is None:
            nearest = self.similar(observation, queries)
        seen = self.view.encodings(observation.encoded.images)
        means = seen[torch.cat([queries[:, None], nearest], dim=1)].mean(dim=1)
        if self.contrast:
            centre = seen.mean(dim=0)
            means = centre + (means - centre) * (observation.k + 1) / 2
        return Reconstruction(means.clamp(0, 1), None, Outcome.SOLVED)
