"""Private images amid unknown public ones, which are noise of known strength: what labels leave over."""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.attacks.encodings.algebra.lift import alternate, lift
from leakgauge.attacks.encodings.clustering.assignment import PRESENT, LabelSimplices

_LIFT_RIDGE, _RIDGE, _STEPS = 0.3, 0.02, 20
_SPLITS = (0.15, 0.3, 0.5, 0.7, 0.85)
_FLOOR = 1e-3
_SPREAD = 4 / 3
"""E[u^2] / E[u]^2 of a uniform variable: how uneven coefficients are."""


def public_variances(labels: Tensor, sizes: Tensor, k: int, private: int) -> Tensor:
    """The variance of a pixel's public part in each encoding: r^2 E[sum lam^2 / (sum lam)^2] s^2, r = 1 - label sum.

    s^2, the mean square of an image's pixel, is read off the encodings themselves.
    """
    power = sizes.square().mean() * k / _SPREAD
    left = (1 - labels.sum(dim=1)).clamp_min(0)
    return (left.square() * _SPREAD / max(1, k - private) * power).clamp_min(_FLOOR)


def pictures_amid(coefficients: Tensor, sizes: Tensor, variances: Tensor) -> Tensor:
    """Pictures n x d by expectation maximisation from a damped lift; encodings with much public in them count less."""
    start = lift(coefficients, sizes.square(), ridge=_LIFT_RIDGE)
    return alternate(coefficients, sizes, start, variances=variances, steps=_STEPS, ridge=_RIDGE)


def likelier(pictures: Tensor, sizes: Tensor, variances: Tensor, simplices: LabelSimplices) -> Tensor:
    """For every encoding of two private images the two that make its sizes most likely, of those its label allows.

    A pixel is a folded Gaussian: log p = log cosh(|E| m / v) - m^2 / 2v + const. For two images of one class the split
    of the weight is found on a grid.
    """
    found = sizes.new_zeros(len(sizes), len(simplices.classes))
    members = [(simplices.classes == label).nonzero().flatten() for label in range(simplices.labels.shape[1])]
    for row, weights in enumerate(simplices.labels):
        present = [label for label in (weights > PRESENT).nonzero().flatten().tolist() if len(members[label])]
        choices, shares = _choices([members[label] for label in present[:2]], weights[present[:2]])
        mixtures = (shares[:, :, None] * pictures[choices]).sum(dim=1)
        best = int(_log_likelihood(mixtures, sizes[row], variances[row]).argmax())
        found[row].index_add_(0, choices[best], shares[best])
    return found


def _choices(members: list[Tensor], weights: Tensor) -> tuple[Tensor, Tensor]:
    """Candidates m x 2 and their shares m x 2."""
    if len(members) == 2:
        choices = torch.cartesian_prod(*members)
        return choices, weights.expand(len(choices), 2)
    if not members:
        return torch.zeros(1, 1, dtype=torch.long), weights.new_zeros(1, 1)
    if len(members[0]) == 1:
        return members[0][:, None], weights[None]
    pairs = torch.combinations(members[0], 2)
    splits = weights.new_tensor(_SPLITS)
    shares = torch.stack([splits, 1 - splits], dim=1) * weights
    return pairs.repeat_interleave(len(splits), dim=0), shares.repeat(len(pairs), 1)


def _log_likelihood(mixtures: Tensor, sizes: Tensor, variance: Tensor) -> Tensor:
    ratio = sizes * mixtures.abs() / variance
    return (ratio + torch.log1p(torch.exp(-2 * ratio)) - mixtures.square() / (2 * variance)).sum(dim=-1)
