"""What an attacker looks at instead of an encoding, so that the mask no longer matters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

from torch import Tensor

from leakgauge.attacks.encodings.algebra.whitening import centred, uncentred


class View(ABC):
    """Encodings, and the images that are compared with them, on one scale: pixels in [0, 1]."""

    @abstractmethod
    def encodings(self, images: Tensor) -> Tensor: ...

    def images(self, images: Tensor) -> Tensor:
        return self.encodings(images)


@final
@dataclass(frozen=True)
class AsPublished(View):
    """The encoding itself: right for Mixup, useless under a mask."""

    def encodings(self, images: Tensor) -> Tensor:
        return images


@final
@dataclass(frozen=True)
class Magnitudes(View):
    """|x|: what a mask of signs leaves, and all that it leaves [Carlini et al., 2021]."""

    def encodings(self, images: Tensor) -> Tensor:
        return uncentred(centred(images).abs())


@final
@dataclass(frozen=True)
class Squares(View):
    """x^2, of which a mixture has sum_j lam_j^2 x_j^2 plus mixed terms of mean zero [Braverman, 2020]."""

    def encodings(self, images: Tensor) -> Tensor:
        return uncentred(centred(images).square())


@final
@dataclass(frozen=True)
class Undemasked(View):
    """|x~| compared with whole images: where an attack stands before it has guessed any sign."""

    def encodings(self, images: Tensor) -> Tensor:
        return uncentred(centred(images).abs())

    def images(self, images: Tensor) -> Tensor:
        return images
