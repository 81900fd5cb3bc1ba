"""What leaves a client that publishes encodings of its images instead of an update."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from leakgauge.errors import InvalidCase


@dataclass(frozen=True)
class EncodedSet:
    """Encodings t c h w in [0, 1] (a flipped pixel is 1 - x, see ``encoding.CENTRE``) and their mixed labels t classes.

    Labels hold the coefficients of the private images by class; what public images contribute is left out, so a row
    sums to at most one.
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.labels.ndim != 2 or len(self.images) != len(self.labels):
            raise InvalidCase(
                f"Encodings are t c h w with labels t classes, got shapes {tuple(self.images.shape)} and "
                f"{tuple(self.labels.shape)}; pass one row of class weights for each encoding."
            )

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class EncodingObservation:
    """All that an attack on published encodings receives. ``None`` = the attacker was not told.

    ``auxiliary`` are images of the same kind that are neither private nor public; ``public`` is the pool that the
    client drew its public images from, in whatever alignment the client used it.
    """

    encoded: EncodedSet
    k: int
    private_per_encoding: int
    signed: bool = True
    num_private: int | None = None
    class_counts: Tensor | None = None
    public: Tensor | None = None
    auxiliary: Tensor | None = None
