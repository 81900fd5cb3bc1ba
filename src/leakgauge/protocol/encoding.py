"""What a client trains on in place of its private batch, or publishes, and how the one was mixed from the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.types import Batch

CENTRE = 0.5
"""Pixels lie in [0, 1]; the sign of a pixel is that of x - CENTRE, so that flipping it is x -> 1 - x."""


class Mixing(NamedTuple):
    """Which private images went into each encoding: row t is sum_j coefficients[t, j] * image[indices[t, j]].

    Indices count the batch first and then the client's other images, where such were mixed in.

    ``signed``: pixels of the mixture were reflected at the centre by a mask that nobody but the client has.
    """

    coefficients: Tensor
    indices: Tensor
    signed: bool = False

    def matrix(self, num_examples: int) -> Tensor:
        """The mixing as Lambda, encodings x private images, in E = Lambda P.

        >>> Mixing(torch.tensor([[0.75, 0.25]]), torch.tensor([[2, 0]])).matrix(3)
        tensor([[0.2500, 0.0000, 0.7500]])
        """
        empty = self.coefficients.new_zeros(len(self.coefficients), num_examples)
        return empty.scatter_add(1, self.indices, self.coefficients)

    def images(self, num_examples: int) -> int:
        """How many private images there are to tell apart: those of the batch, and others as far as they occur."""
        return max(num_examples, int(self.indices.max()) + 1)

    def rows(self, chosen: Tensor | slice) -> Mixing:
        """The mixing of some of the encodings."""
        return Mixing(self.coefficients[chosen], self.indices[chosen], self.signed)

    def columns(self, chosen: slice) -> Mixing:
        """The part that some of the images have in every encoding."""
        return Mixing(self.coefficients[:, chosen], self.indices[:, chosen], self.signed)

    def mix(self, values: Tensor) -> Tensor:
        """The same mixture of anything there is one of for each private image."""
        return torch.tensordot(self.matrix(len(values)).to(values), values, dims=1)

    def then(self, later: Mixing) -> Mixing | None:
        """This mixing, followed by another of its encodings; None if signs in between hide the images from the sum."""
        if self.signed:
            return None
        coefficients = later.coefficients[:, :, None] * self.coefficients[later.indices]
        return Mixing(coefficients.flatten(1), self.indices[later.indices].flatten(1), later.signed)


class Encoding(NamedTuple):
    """What a client trains on; ``mixing`` is None where that is its batch itself, or nothing linear in it."""

    batch: Batch
    mixing: Mixing | None = None

    def then(self, later: Encoding) -> Encoding:
        """The encoding of an encoding."""
        if self.mixing is None or later.mixing is None:
            return Encoding(later.batch, self.mixing or later.mixing)
        return Encoding(later.batch, self.mixing.then(later.mixing))


def stack_mixings(mixings: list[Mixing]) -> Mixing:
    """Several rounds' mixings of the same private images, one below the other."""
    return Mixing(
        torch.cat([mixing.coefficients for mixing in mixings]),
        torch.cat([mixing.indices for mixing in mixings]),
        any(mixing.signed for mixing in mixings),
    )


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
