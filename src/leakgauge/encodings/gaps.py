"""How far the inner products that betray a mixed image stand from those that do not, for Gaussian images."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor


class Products(NamedTuple):
    """Inner products of independent trials: where an image is shared, and where none is."""

    shared: Tensor
    unrelated: Tensor

    @property
    def separation(self) -> float:
        """The distance of the means in standard deviations of the wider of the two."""
        spread = max(float(self.shared.std()), float(self.unrelated.std()))
        return float(self.shared.mean() - self.unrelated.mean()) / spread


def between_mixtures(dimension: int, k: int, trials: int, *, generator: Generator) -> Products:
    """<x~, x~'> of sums of k images, with one of them in common or none [Huang et al., 2020, Theorem B.1, k = 2].

    For x ~ N(0, I/d): mean 1 and variance (k^2 + 1) / d if one is shared, else mean 0 and variance k^2 / d.
    """
    first, second = (_sums(trials, k, dimension, generator) for _ in range(2))
    common = _images(trials, dimension, generator=generator)
    fewer = [_sums(trials, k - 1, dimension, generator) for _ in range(2)]
    return Products(_inner(common + fewer[0], common + fewer[1]), _inner(first, second))


def with_public(dimension: int, k: int, trials: int, *, generator: Generator) -> Products:
    """<x~, x> of a sum of k images with one of the k, or with another public image [Huang et al., 2020, Theorem B.3].

    For x ~ N(0, I/d): mean 1 and variance (k + 1) / d if it is one of them, else mean 0 and variance k / d.
    """
    member, stranger = (_images(trials, dimension, generator=generator) for _ in range(2))
    mixture = member + _sums(trials, k - 1, dimension, generator)
    return Products(_inner(mixture, member), _inner(mixture, stranger))


def _images(*shape: int, generator: Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64) / shape[-1] ** 0.5


def _sums(trials: int, count: int, dimension: int, generator: Generator) -> Tensor:
    return _images(trials, count, dimension, generator=generator).sum(dim=1)


def _inner(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(dim=1)
