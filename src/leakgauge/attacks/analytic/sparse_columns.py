"""What a batch put into a linear layer, from the layer's update: a product of unknown matrices, one of them sparse.

For y = W x + b under a ReLU the update of W is D^T X, X the inputs and D the cotangents of y, a row for each example;
D is zero wherever a unit was inactive. With U a basis of the update's columns, U q is a column of D^T for those few q
that make it sparse [compare Dimitrov et al., 2024, SPEAR]. The update of b is the sum of D's rows, and gives them their
lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.progress import Progress, Tick, silent

_GAP = 3.0
"""How much larger the last singular value of a batch is than the first of the noise, at least."""
_MARGIN = 10
"""Singular values that are looked at beyond the size of the batch."""
_LARGEST = 512
"""The largest batch that is looked for where its size is not known."""
_STRONG = 5.0
"""How far a row of the update must stand out of the noise to be used, in standard deviations of its projection."""
_ZERO = 8.0
"""Up to how many standard deviations of the noise an entry counts as zero."""
_ROUNDING = 4.0
"""The least noise of a row's entries, in roundings of their root mean square."""
_STARTS = 32
_POWER_STEPS, _REWEIGHTINGS, _SHRINK = 60, 45, 0.72
_ACCIDENT = 0.999
"""The leverage from which a row or two, not the example, make a direction sparse."""
_SAME = 0.99
"""The cosine from which two directions are one."""
_SPARSE, _LESS, _LEAST = 0.4, 0.05, 0.05
"""The share of zeros a column must have: at first, less of it after a round without success, and at the least."""


@dataclass(frozen=True)
class Factors:
    """X and D of the update D^T X of b examples, in float64.

    ``unexplained`` is the share of the bias update that the rows of D do not sum up to. ``active`` says where D is not
    zero, of the units that moved at all.
    """

    inputs: Tensor
    cotangents: Tensor
    active: Tensor
    unexplained: float


class Basis(NamedTuple):
    """An orthonormal basis of the columns of an update, each row of which was brought to the same length before."""

    rows: Tensor
    lengths: Tensor
    """Of the rows."""
    scales: Tensor
    """By which a row was divided."""
    noise: Tensor
    """Of each row, to be multiplied by the length of ``spread @ q`` for a direction q."""
    spread: Tensor


def factorise(
    weight_update: Tensor,
    bias_update: Tensor,
    count: int | None,
    *,
    generator: Generator,
    progress: Progress = silent,
) -> Factors | str:
    """The factors of an update of so many examples, or of as many as it has the rank of; else why there are none."""
    update, offset = weight_update.detach().double().cpu(), bias_update.detach().double().cpu()
    moved = (update.norm(dim=1) > 0) & (offset != 0)
    if count is not None and min(update.shape) <= count:
        return f"the layer has {update.shape[1]} inputs and {len(update)} units, too few for {count} examples"
    left, sizes, right = _spectrum(update[moved], _LARGEST if count is None else count, generator)
    rank = numerical_rank(sizes, torch.finfo(weight_update.dtype).eps)
    if rank is None:
        return (
            "the update has no gap in its singular values, as the update of a batch that is smaller than the layer has"
        )
    if count is not None and rank > count:
        return f"the update has rank {rank}, more than the {count} examples"
    left, sizes, right = left[:, :rank], sizes[:rank], right[:rank]
    width, rounding = math.sqrt(update.shape[1]), _ROUNDING * torch.finfo(weight_update.dtype).eps
    noise = (update[moved] - (left * sizes) @ right).norm(dim=1).maximum(rounding * update[moved].norm(dim=1)) / width
    strong = (left * sizes).norm(dim=1) > _STRONG * math.sqrt(rank) * noise
    used = moved.clone()
    used[moved] = strong
    if int(used.sum()) < 2 * rank:
        return f"{int(used.sum())} units that moved are too few to tell {rank} examples apart"
    directions = sparse_directions(basis_of(left[strong], sizes, noise[strong]), generator, progress)
    if len(directions.vectors) < rank:
        return (
            f"of {rank} examples, {len(directions.vectors)} could be told apart, and less than all of them is nothing"
        )
    return _solve(update, offset, used, directions)


def numerical_rank(sizes: Tensor, rounding: float) -> int | None:
    """How many singular values stand before the largest gap; None where there is no clear one.

    What is below a tenth of a rounding of the largest counts as that much: inputs that depend on each other, as the
    entries of a category do, leave zeros behind the noise.

    >>> numerical_rank(torch.tensor([3.0, 2.0, 1e-7, 0.0]), 1e-7)
    2
    """
    if len(sizes) < 2:
        return None
    floored = sizes.clamp_min(0.1 * rounding * sizes[0])
    ratios = floored[:-1] / floored[1:]
    place = int(ratios.argmax())
    return place + 1 if bool(ratios[place] >= _GAP) else None


def _spectrum(update: Tensor, count: int, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """The leading singular vectors and values, by a random projection that is made precise by powers."""
    size = min(count + _MARGIN, *update.shape)
    if size == min(update.shape):
        return torch.linalg.svd(update, full_matrices=False)
    drawn = torch.randn(update.shape[1], size, generator=generator, dtype=torch.float64)
    basis = torch.linalg.qr(update @ drawn)[0]
    for _ in range(3):
        basis = torch.linalg.qr(update @ (update.mT @ basis))[0]
    left, sizes, right = torch.linalg.svd(basis.mT @ update, full_matrices=False)
    return basis @ left, sizes, right


def basis_of(left: Tensor, sizes: Tensor, noise: Tensor) -> Basis:
    scales = left.norm(dim=1)
    rows, turn = torch.linalg.qr(left / scales[:, None])
    # An error e of a row of the update is one of e V / sizes in its row of the singular vectors, and turned with it.
    return Basis(rows, rows.norm(dim=1), scales, noise / scales, torch.linalg.inv(turn) / sizes[:, None])


class Directions(NamedTuple):
    """Unit vectors q, one in a row, for which the basis times q is sparse, and where it is not zero."""

    basis: Basis
    vectors: Tensor
    active: Tensor


def sparse_directions(basis: Basis, generator: Generator, progress: Progress = silent) -> Directions:
    """All directions that could be found; as many as the basis has columns are all that there are."""
    units, size = basis.rows.shape
    found = Directions(basis, torch.zeros(0, size, dtype=torch.float64), torch.zeros(0, units, dtype=torch.bool))
    if size == 1:
        return Directions(basis, torch.ones(1, 1, dtype=torch.float64), torch.ones(1, units, dtype=torch.bool))
    patience = int(max(12, min(3 * size, 768 / size)))
    stale, wanted, made = 0, _SPARSE, 0
    while len(found.vectors) < size and stale < patience:
        before = len(found.vectors)
        for direction in _sharpen(basis, *_starts(found, generator, leaning=stale % 2 == 1)):
            found = _keep(found, direction, wanted * units)
        made += 1
        if len(found.vectors) > before:
            stale = 0
        else:
            stale, wanted = stale + 1, max(_LEAST, wanted - _LESS)
        progress(Tick(made, len(found.vectors) / size, math.nan))
    return found


class Starts(NamedTuple):
    """Where searches start; those with an ``anchor`` never leave what is at right angles to what was found."""

    vectors: Tensor
    anchored: Tensor
    anchors: Tensor
    exponents: Tensor


def _starts(found: Directions, generator: Generator, *, leaning: bool) -> tuple[Starts]:
    """Of four kinds: rows away from what was found, rows as they are, random ones, and those without a power method.

    ``leaning`` starts are near one that was found: examples that are alike have directions that are.
    """
    basis, known = found.basis, found.vectors
    units, size = basis.rows.shape
    kind = torch.arange(_STARTS) % 4
    away = _away_from(known)
    fresh = (away(basis.rows).norm(dim=1) / basis.lengths).pow(4) + torch.finfo(torch.float64).eps
    rows = torch.multinomial(fresh, _STARTS, generator=generator, replacement=True)
    drawn = torch.randn(_STARTS, size, generator=generator, dtype=torch.float64)
    vectors = torch.where((kind >= 2)[:, None], drawn, basis.rows[rows])
    anchored = (kind == 0)[:, None]
    vectors = _unit(torch.where(anchored, away(vectors), vectors))
    if leaning and len(known):
        other = known[torch.randint(len(known), (_STARTS,), generator=generator)]
        lean = 2 * torch.rand(_STARTS, 1, generator=generator, dtype=torch.float64) - 1
        vectors = _unit((1 - lean**2).sqrt() * _unit(away(vectors)) + lean * other)
    else:
        levels = torch.tensor([0.5, 0.7, 1.0], dtype=torch.float64)[torch.arange(_STARTS) // 4 % 3]
        levels = torch.where(kind == 2, 0.5, levels)[:, None] / math.sqrt(units)
        powered = vectors
        for _ in range(_POWER_STEPS):
            seen = powered @ basis.rows.mT
            turned = (seen.sign() * (seen.abs() - levels).clamp_min(0)) @ basis.rows
            powered = _unit(torch.where(anchored, away(turned), turned))
        vectors = torch.where((kind == 3)[:, None], vectors, powered)
    exponents = torch.where(kind >= 2, 1.0, 0.5).double()[:, None]
    return (Starts(vectors, anchored, _unit(away(vectors)), exponents),)


def _away_from(known: Tensor) -> Callable[[Tensor], Tensor]:
    if not len(known):
        return lambda vectors: vectors
    span = torch.linalg.qr(known.mT)[0]
    return lambda vectors: vectors - (vectors @ span) @ span.mT


def _unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)


def _sharpen(basis: Basis, starts: Starts) -> Tensor:
    """Reweighted least squares towards sparse directions [Chartrand & Yin, 2008], all starts at once."""
    rows, q = basis.rows, starts.vectors
    units, size = rows.shape
    eye = torch.eye(size, dtype=rows.dtype)
    softness = 1 / math.sqrt(units)
    for _ in range(_REWEIGHTINGS):
        weights = ((q @ rows.mT).square() + softness**2).pow(starts.exponents / 2 - 1)
        matrix = (weights[:, :, None] * rows).mT @ rows
        ridge = torch.finfo(rows.dtype).eps * matrix.diagonal(dim1=1, dim2=2).mean(dim=1)
        towards = torch.where(starts.anchored, starts.anchors, q)
        q = _unit(torch.linalg.solve(matrix + ridge[:, None, None] * eye, towards[:, :, None])[:, :, 0])
        softness *= _SHRINK
    return q


def _keep(found: Directions, q: Tensor, least: float) -> Directions:
    """What was found, and a direction more if it is sparse and new."""
    known, size = found.vectors, len(q)
    if len(known) == size or (len(known) and float((known @ q).abs().max()) > 1 - 1e-4):
        return found
    polished = _polish(found.basis, q, max(size - 1 + max(4.0, 0.1 * size), least))
    if polished is None or (len(known) and float((known @ polished[0]).abs().max()) > _SAME):
        return found
    vector, zero = polished
    return Directions(found.basis, torch.cat([known, vector[None]]), torch.cat([found.active, ~zero[None]]))


def _polish(basis: Basis, q: Tensor, least: float) -> tuple[Tensor, Tensor] | None:
    """The one direction for which the rows that are nearly zero at q are zero, and which they are; None where there are
    too few of them, or where they leave more than one direction."""
    before: Tensor | None = None
    for rough in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 0.0, 0.0, 0.0):
        tolerance = (_ZERO * (basis.spread @ q).norm() * basis.noise).maximum(rough * basis.lengths)
        zero = (basis.rows @ q).abs() < tolerance
        for _ in range(3):
            if int(zero.sum()) < least:
                return None
            left, sizes, right = torch.linalg.svd(basis.rows[zero] / basis.lengths[zero][:, None], full_matrices=False)
            if not bool(sizes[-2] > 1e-6 * sizes[0]):
                return None
            accidents = _accidents(left[:, :-1])
            if not bool(accidents.any()):
                break
            places = zero.nonzero()[:, 0]
            zero = zero.clone()
            zero[places[accidents]] = False
        q = right[-1]
        if before is not None and torch.equal(zero, before):
            break
        before = zero if rough == 0 else None
    return q, zero


def _accidents(left: Tensor) -> Tensor:
    """The rows that alone, or with one other row, say which of several directions it is.

    A mixture of two examples is zero where both are, and at one more row that happens to be; among all the pairs of
    rows some agree to seven digits. Without such a row, or such a pair, more than one direction is left: the projection
    onto the span of the rows has an eigenvector within them.
    """
    lever = left @ left.mT
    own = lever.diagonal()
    middle, half = (own[:, None] + own) / 2, (own[:, None] - own) / 2
    largest = middle + (half.square() + lever.square()).sqrt()
    largest.fill_diagonal_(0.0)
    return (own > _ACCIDENT) | (largest > _ACCIDENT).any(dim=1)


def _solve(update: Tensor, offset: Tensor, used: Tensor, directions: Directions) -> Factors:
    """Lengths by the update of the bias, inputs by least squares; units that were left aside count as inactive."""
    columns = (directions.basis.rows @ directions.vectors.mT) * directions.basis.scales[:, None]
    columns = torch.where(directions.active.mT, columns, 0.0)
    lengths = torch.linalg.lstsq(columns, offset[used][:, None]).solution[:, 0]
    unexplained = float((columns @ lengths - offset[used]).norm() / offset[used].norm())
    columns = columns * lengths
    inputs = torch.linalg.lstsq(columns, update[used]).solution
    cotangents = torch.zeros(len(inputs), len(update), dtype=torch.float64)
    active = torch.zeros_like(cotangents, dtype=torch.bool)
    cotangents[:, used], active[:, used] = columns.mT, directions.active
    return Factors(inputs, cotangents, active, unexplained)
