"""Signs and pixels by turns: maximum likelihood for mixtures of which only the sizes were seen."""

from __future__ import annotations

import torch
from torch import Tensor

_RIDGE = 1e-9


def expected(mixtures: Tensor, sizes: Tensor, variances: Tensor | None = None) -> Tensor:
    """What a signed encoding was before its mask, given what the mixtures are thought to be.

    Under Gaussian errors E[s] = tanh(|E| m / v); without errors, the sign of m.
    """
    if variances is None:
        return torch.where(mixtures < 0, -sizes, sizes)
    return torch.tanh(sizes * mixtures / variances[:, None]) * sizes


def alternate(
    mixing: Tensor,
    sizes: Tensor,
    start: Tensor,
    *,
    variances: Tensor | None = None,
    steps: int,
    ridge: float = _RIDGE,
) -> Tensor:
    """x, n x d, that explains ``sizes`` = |mixing x|, t x d: {s = sign(mixing x), x = pinv(mixing) (s |E|)} by turns.

    With ``variances``, the mean squared errors of the encodings, this is expectation maximisation for folded Gaussian
    mixtures: signs are expectations, and an encoding counts by the inverse of its variance. ``ridge`` is relative to
    the mean diagonal of the normal matrix.
    """
    weighted = mixing if variances is None else mixing / variances[:, None]
    gram = (weighted.T @ mixing).double()
    damped = gram + ridge * gram.diagonal().mean() * torch.eye(len(gram)).to(gram)
    inverse = torch.linalg.solve(damped, weighted.T.double()).to(mixing)
    found = start
    for _ in range(steps):
        found = inverse @ expected(mixing @ found, sizes, variances)
    return found


def residuals(mixing: Tensor, sizes: Tensor, pictures: Tensor) -> Tensor:
    """Squared errors of the sizes, t x d."""
    return ((mixing @ pictures).abs() - sizes).square()
