"""Braverman's search for public images behind a mask: squares do not feel signs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.whitening import centred
from leakgauge.attacks.encodings.search.ranking import Score
from leakgauge.attacks.encodings.search.statistics import MatchedFilter, Sides
from leakgauge.attacks.encodings.views import Squares
from leakgauge.protocol.encoded_set import EncodingObservation


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
