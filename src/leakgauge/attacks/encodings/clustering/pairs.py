"""Which encodings share a private image: one score for every two of them, from what the mask leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.whitening import Features, HighPass, Whitened, unit
from leakgauge.attacks.encodings.synthetic import mixtures
from leakgauge.attacks.encodings.views import Squares, View
from leakgauge.errors import MissingKnowledge
from leakgauge.protocol.encoded_set import EncodingObservation

_SYNTHETIC = 6000


@dataclass(frozen=True)
class PairSimilarity:
    """cos(f(E_a) - mean, f(E_b) - mean), f some features of E^2; the mean is that of all encodings.

    For pixels that are independent Gaussians the covariance of E_a^2 and E_b^2 is 2 (lam_a . lam_b)^2; a high-pass
    filter removes what all pictures have in common.
    """

    view: View = field(default_factory=Squares)
    features: Features = field(default_factory=HighPass)

    def __call__(self, observation: EncodingObservation, *, generator: Generator) -> Tensor:
        shown = self.view.encodings(observation.encoded.images)
        rows = self.features.fit(self._example(observation, generator))(shown)
        rows = unit(rows - rows.mean(dim=0))
        return rows @ rows.mT

    def _example(self, observation: EncodingObservation, generator: Generator) -> Tensor:
        if not isinstance(self.features, Whitened):
            return observation.encoded.images
        if observation.auxiliary is None:
            raise MissingKnowledge(
                "Whitened pairs need `auxiliary` images to learn the covariance from; pass some, or use high-passed "
                "ones."
            )
        mixed = mixtures(observation.auxiliary, observation.k, _SYNTHETIC, generator=generator)
        return self.view.encodings(mixed.images)
