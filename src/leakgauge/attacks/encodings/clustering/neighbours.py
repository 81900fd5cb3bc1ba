"""Pixels that the alternation left in a poor minimum, started again from their neighbours."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from leakgauge.attacks.encodings.algebra.alternation import alternate, residuals
from leakgauge.types import Shape

_POOR = 4.0
"""How many times the typical error of a pixel counts as poor."""
_EXACT = 1e-12
_SWEEPS, _STEPS = 3, 10


def repair(mixing: Tensor, sizes: Tensor, pictures: Tensor, shape: Shape, *, variances: Tensor) -> Tensor:
    """Pictures n x d in which no poor pixel would be explained better from where one of its neighbours ended.

    Neighbours are alike up to the one open sign, which the sizes do not see, so that a start next door is a good one.
    """
    found = pictures
    for _ in range(_SWEEPS):
        errors = _errors(mixing, sizes, found, variances)
        poor = (errors > _POOR * errors.median() + _EXACT).nonzero().flatten()
        if not len(poor):
            break
        found = found.clone()
        best, least = found[:, poor], errors[poor]
        for source in _shift(torch.arange(sizes.shape[1]).view(shape)):
            tried = alternate(mixing, sizes[:, poor], found[:, source[poor]], variances=variances, steps=_STEPS)
            left = _errors(mixing, sizes[:, poor], tried, variances)
            best = torch.where(left < least, tried, best)
            least = torch.minimum(left, least)
        found[:, poor] = best
    return found


def _errors(mixing: Tensor, sizes: Tensor, pictures: Tensor, variances: Tensor) -> Tensor:
    """What is left at each pixel, encodings weighted by the inverse of their variance."""
    weights = 1 / variances
    return (weights / weights.sum()) @ residuals(mixing, sizes, pictures)


def _shift(index: Tensor) -> Iterator[Tensor]:
    """For every pixel the one next to it, in each direction of the plane and among the channels."""
    for dim in range(3):
        for step in (1, -1):
            if index.shape[dim] > 1:
                yield index.roll(step, dim).flatten()
