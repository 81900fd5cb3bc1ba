"""What breaking one encoding was estimated to cost, beside what the attacks that came later cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from leakgauge.errors import InvalidCase

_YEAR = 365.25 * 24 * 3600


class Cost(NamedTuple):
    """A way to attack, and its work as a power of ten."""

    way: str
    log10_work: float

    def log10_years(self, per_second: float) -> float:
        """How long that takes at so many operations a second, as a power of ten as well."""
        return self.log10_work - math.log10(per_second * _YEAR)


@dataclass(frozen=True)
class Hardness:
    """min{|D_public|^(k - private), 2^d}, the naive attack on one encoding [Huang et al., 2020, section 4.2].

    It is the cost of one attack, not a lower bound on all: encodings of the same image give each other away, and
    attacks on many of them together never guess a public image or a mask [Carlini et al., 2021].

    >>> round(Hardness(public=1e7, k=4).naive.log10_work, 6)
    14.0
    """

    public: float
    k: int = 6
    private: int = 2
    pixels: int = 3 * 32 * 32

    def __post_init__(self) -> None:
        if not 1 <= self.public < math.inf:
            raise InvalidCase(f"A public set of {self.public:g} images cannot be searched; give at least 1.")
        if not 1 <= self.private <= self.k:
            raise InvalidCase(f"Of k = {self.k} images {self.private} cannot be private; choose between 1 and k.")
        if self.pixels < 1:
            raise InvalidCase(f"An image of {self.pixels} pixels has no mask; give channels x height x width.")

    @property
    def guess_public(self) -> Cost:
        """|D_public|^(k - private)."""
        return Cost("guess the public images", (self.k - self.private) * math.log10(self.public))

    @property
    def guess_mask(self) -> Cost:
        """2^d."""
        return Cost("guess the mask", self.pixels * math.log10(2))

    @property
    def naive(self) -> Cost:
        cheaper = min(self.guess_public, self.guess_mask, key=lambda cost: cost.log10_work)
        return Cost("naive attack, the cheaper of the two", cheaper.log10_work)

    @property
    def search(self) -> Cost:
        """|D_public| d multiplications: an inner product with each public image, which finds them all [section 2.2]."""
        return Cost("search by inner products, once the signs are known", math.log10(self.public * self.pixels))

    @property
    def costs(self) -> tuple[Cost, ...]:
        return self.guess_public, self.guess_mask, self.naive, self.search
