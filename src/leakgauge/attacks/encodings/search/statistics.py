"""What is computed for an encoding and a candidate image, to tell whether the one contains the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.whitening import FeatureMap, Features, Whitened, centred, whitener
from leakgauge.attacks.encodings.base import auxiliary_of
from leakgauge.attacks.encodings.search.ranking import Score
from leakgauge.attacks.encodings.simulation import mixtures
from leakgauge.attacks.encodings.views import AsPublished, Squares, View
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import EncodingObservation


class Sides(NamedTuple):
    """How encodings and how candidate images become rows that are compared by a score."""

    encodings: FeatureMap
    images: FeatureMap


class Statistic(Protocol):
    """What is computed for an encoding and a candidate image; large if the one contains the other."""

    @property
    def score(self) -> Score: ...

    def fit(self, observation: EncodingObservation, *, generator: Generator) -> Sides: ...


@dataclass(frozen=True)
class Correlation:
    """<f(x~), f(s)>, f a feature map fitted to auxiliary images [Huang et al., 2020, section 2.2].

    With `Normalised` features this is the published statistic.
    """

    features: Features = field(default_factory=Whitened)
    view: View = field(default_factory=AsPublished)
    score: Score = "cosine"

    def fit(self, observation: EncodingObservation, *, generator: Generator) -> Sides:
        del generator
        mapped = self.features.fit(self.view.images(auxiliary_of(observation, self)))
        return Sides(
            lambda encodings: mapped(self.view.encodings(encodings)), lambda images: mapped(self.view.images(images))
        )


@dataclass(frozen=True)
class MatchedFilter:
    """(v(x~) - m)^T (C + ridge)^-1 (v(s) - m') over its length in s: C is what views v of encodings vary by.

    Mean m and covariance C come from ``encodings`` simulated encodings of auxiliary images, m' from those images. The
    default ridge is the best for squares on mixtures of CIFAR-100, of those from 1e-3 to 0.4.
    """

    view: View = field(default_factory=Squares)
    ridge: float = 3e-3
    encodings: int = 6000
    score: Score = "cosine"

    def __post_init__(self) -> None:
        if not self.ridge >= 0 or self.encodings < 2:
            raise InvalidCase(
                f"MatchedFilter needs ridge >= 0 and encodings >= 2, got {self.ridge} and {self.encodings}; correct "
                "them."
            )

    def fit(self, observation: EncodingObservation, *, generator: Generator) -> Sides:
        pool = auxiliary_of(observation, self)
        simulated = mixtures(pool, observation.k, self.encodings, generator=generator).images
        whiten = whitener(_rows(self.view.encodings(simulated)), self.ridge)
        around = whiten._replace(mean=_rows(self.view.images(pool)).mean(dim=0))
        return Sides(
            lambda encodings: whiten(_rows(self.view.encodings(encodings))),
            lambda images: around(_rows(self.view.images(images))),
        )


def _rows(images: Tensor) -> Tensor:
    return centred(images).flatten(1)


@dataclass(frozen=True)
class FourthMoment:
    """v_s = <x~^2, s^2> - |x~|^2 |s|^2 / d, as published [Braverman, 2020, in Huang et al., 2020, section 6].

    It is the inner product of squares without their means. For images of independent Gaussian pixels of variance v its
    expectation is 2 (d - 1) lam_s^2 v^2, and 0 for an image that is not in the mixture.
    """

    score: ClassVar[Score] = "inner"

    def fit(self, observation: EncodingObservation, *, generator: Generator) -> Sides:
        del observation, generator
        return Sides(_squares, _squares)


def whitened_squares(ridge: float = 3e-3, encodings: int = 6000) -> MatchedFilter:
    """The same for real images: (x~^2 - m)^T (C + ridge)^-1 (s^2 - m') over its length in s, see `MatchedFilter`."""
    return MatchedFilter(Squares(), ridge, encodings)


def _squares(images: Tensor) -> Tensor:
    squares = centred(images).flatten(1).square()
    return squares - squares.mean(dim=1, keepdim=True)
