"""Images from the sizes of known mixtures: a linear problem in the products of pixels, then signs by turns."""

from __future__ import annotations

from collections.abc import Callable

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


_LIFT_RIDGE = 1e-6
_POWER_STEPS = 60
_EIGENVECTORS_BELOW = 64
"""Matrices up to this size are decomposed exactly; beyond, power iteration costs less and signs by turns follow."""


def products(mixing: Tensor) -> Tensor:
    """A, t x n(n+1)/2, with (mixing x)^2 = A svec(x x^T): E^2 is linear in the products x_i x_j.

    Off the diagonal svec carries a root of two, so that A A^T = (mixing mixing^T)^2 entry by entry.
    """
    one, two = _pairs(mixing)
    scale = torch.where(one == two, 1.0, 2.0).to(mixing).sqrt()
    return mixing[:, one] * mixing[:, two] * scale


def lift(mixing: Tensor, squares: Tensor, *, weights: Tensor | None = None, ridge: float = _LIFT_RIDGE) -> Tensor:
    """x, n x d, with (mixing x)^2 nearest to ``squares`` t x d: ridge least squares in x x^T, then its top eigenvector.

    One matrix serves all pixels. Determined once t >= n(n+1)/2; short of that the solution of least norm, taken through
    (mixing mixing^T)^2, is a spectral start. ``weights`` are one per encoding; ``ridge`` is relative to the mean
    diagonal. The sign of every column is open.
    """
    weights = torch.ones_like(mixing[:, :1]) if weights is None else weights[:, None].to(mixing)
    if mixing.shape[1] * (mixing.shape[1] + 1) // 2 <= len(mixing):
        return _top_of_matrices(_solve_products(mixing, squares, weights, ridge), mixing.shape[1])
    return _top_of_combinations(mixing, weights * _solve_dual(mixing, squares, weights, ridge))


def _pairs(mixing: Tensor) -> tuple[Tensor, Tensor]:
    one, two = torch.triu_indices(mixing.shape[1], mixing.shape[1], device=mixing.device)
    return one, two


def _solve_products(mixing: Tensor, squares: Tensor, weights: Tensor, ridge: float) -> Tensor:
    """The matrices x x^T of all pixels, d n n."""
    design = weights * products(mixing)
    gram = design.T @ design
    damped = gram + ridge * gram.diagonal().mean() * torch.eye(len(gram)).to(gram)
    found = torch.linalg.solve(damped.double(), (design.T @ (weights * squares)).double()).to(mixing)
    one, two = _pairs(mixing)
    found = found / torch.where(one == two, 1.0, 2.0).to(found).sqrt()[:, None]
    matrices = found.new_empty(found.shape[1], mixing.shape[1], mixing.shape[1])
    matrices[:, one, two] = found.T
    matrices[:, two, one] = found.T
    return matrices


def _solve_dual(mixing: Tensor, squares: Tensor, weights: Tensor, ridge: float) -> Tensor:
    """Coefficients a, t x d, of x x^T = sum_t w_t a_t lam_t lam_t^T."""
    kernel = (weights * weights.T) * (mixing @ mixing.T).square()
    damped = kernel + ridge * kernel.diagonal().mean() * torch.eye(len(kernel)).to(kernel)
    return torch.cholesky_solve((weights * squares).double(), torch.linalg.cholesky(damped.double())).to(mixing)


def _top_of_matrices(matrices: Tensor, size: int) -> Tensor:
    if size <= _EIGENVECTORS_BELOW:
        values, vectors = torch.linalg.eigh(matrices)
        return (vectors[:, :, -1] * values[:, -1:].clamp_min(0).sqrt()).T
    return _power(
        lambda x: torch.bmm(matrices, x.T[:, :, None])[:, :, 0].T, _start(matrices.diagonal(dim1=1, dim2=2).T)
    )


def _top_of_combinations(mixing: Tensor, coefficients: Tensor) -> Tensor:
    """The top eigenvector of sum_t a_t lam_t lam_t^T for every column of a, without the matrices."""
    diagonal = mixing.square().T @ coefficients
    return _power(lambda x: mixing.T @ (coefficients * (mixing @ x)), _start(diagonal))


def _start(diagonal: Tensor) -> Tensor:
    # Signs that alternate: no eigenvector of interest is orthogonal to them but by accident.
    signs = torch.where(torch.arange(len(diagonal)) % 2 == 0, 1.0, -1.0).to(diagonal)[:, None]
    return diagonal.clamp_min(0).sqrt() * signs + 1e-6


def _power(apply: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Top eigenvectors, one a column, times the root of the eigenvalue."""
    vectors, values = _iterate(apply, start)
    if bool((values < 0).any()):
        # There the largest in size is the lowest; shifted by it, the top is largest.
        lowest = values.clamp(max=0)
        vectors, _ = _iterate(lambda x: apply(x) - lowest * x, start)
        values = (vectors * apply(vectors)).sum(dim=0)
    return vectors * values.clamp_min(0).sqrt()


def _iterate(apply: Callable[[Tensor], Tensor], vectors: Tensor) -> tuple[Tensor, Tensor]:
    for _ in range(_POWER_STEPS):
        vectors = apply(vectors)
        vectors = vectors / vectors.norm(dim=0).clamp_min(1e-30)
    return vectors, (vectors * apply(vectors)).sum(dim=0)
