"""Entries of a linear layer's update that a defence zeroed, out of those that it left."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import torch
from torch import Tensor

from leakgauge.attacks.base import Stepper, StepperAround
from leakgauge.protocol import clients
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Reconstruction

_HELD_OUT = 0.05
"""Of the visible entries, which the completion is judged by."""
_TRUSTED = 5e-3
"""Relative error on those above which nothing is completed, and change of the hidden entries once they join."""
_EXACT, _ROUNDS, _STALLED, _POWERS = 1e-6, 80, 5, 4
"""Relative error on the fitted entries at which alternating ends, after how many rounds at the latest, within how many
it must have fallen, and how many times the entries are multiplied by themselves to begin."""
_RIDGE = 1e-8
"""Of a system's mean diagonal: images that are alike leave it singular."""
_WORK, _MOST_WORK = 5e8, 2e10
"""Products in half a round, some 1e10 of which take a second: of a larger matrix the rows and columns in which most
is visible are factorised, and the others follow in one. Where that takes more still, a layer is left as it is."""


def complete_update(observation: UpdateObservation) -> UpdateObservation:
    """The observation with what the visible entries of its linear layers say of those that a defence zeroed.

    The update of a linear layer that sees one vector of each example is a sum of as many outer products: a matrix of
    low rank, of which a part of the entries determines the rest [matrix completion, Candès & Recht, 2009]. Pruning
    leaves the largest, many of them in rows and columns of large entries, so that there it hides nothing. What the
    layer is does not have to be known: completed is what predicts entries that were set aside.
    """
    count = observation.num_examples
    if count is None or not clients.transforms(observation.local_update):
        return observation
    params = {name: complete(tensor, count) for name, tensor in observation.update.params.items()}
    return replace(observation, update=replace(observation.update, params=params))


class CompletedSearch(StepperAround):
    """An attack on a completed update, whose results say how much of it was sent and how much was known."""

    def __init__(self, inner: Stepper, sent: float, known: float) -> None:
        super().__init__(inner)
        self.told = f"{100 * known:.3g} % of the update; sent were {100 * sent:.3g} %"

    def results(self) -> list[Reconstruction]:
        return [replace(one, facts={**one.facts, "entries known": self.told}) for one in self.inner.results()]


def complete(matrix: Tensor, rank: int) -> Tensor:
    """A matrix of that rank some of whose entries were zeroed, with those that the others determine.

    Only rows and columns with enough visible entries in each other are completed, and only if entries that were set
    aside come out right; else it is returned as it is.

    >>> full = torch.outer(torch.arange(1.0, 21), torch.arange(1.0, 31))
    >>> torch.allclose(complete(full.where(full > 20, 0.0), 1)[1:, 1:], full[1:, 1:])
    True
    """
    if matrix.ndim != 2 or min(matrix.shape) <= rank or not (matrix == 0).any() or not matrix.isfinite().all():
        return matrix
    rows, columns = _determined(matrix != 0, ceil(1.5 * rank) + 4)
    part = matrix[rows][:, columns]
    if min(part.shape) <= rank or not (part == 0).any() or part.numel() * rank**2 > _MOST_WORK:
        return matrix
    found = _fill(part.double(), rank)
    if found is None:
        return matrix
    result = matrix.clone()
    result[rows[:, None] & columns] = found.to(matrix).flatten()
    return result


def _determined(visible: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """The largest set of rows and columns each of which has ``least`` visible entries or more among the others."""
    seen = visible.float()
    rows, columns = (seen.new_ones(size, dtype=torch.bool) for size in visible.shape)
    while True:
        fewer = rows & (seen @ columns.float() >= least)
        narrower = columns & (fewer.float() @ seen >= least)
        if torch.equal(fewer, rows) and torch.equal(narrower, columns):
            return rows, columns
        rows, columns = fewer, narrower


def _fill(matrix: Tensor, rank: int) -> Tensor | None:
    """All entries, the visible ones as they are; None where those that were set aside come out otherwise, or those that
    are hidden change with them."""
    visible = matrix != 0
    drawn = torch.rand(matrix.shape, generator=seeded(0, "held out")).to(matrix.device)
    aside = visible & (drawn < _HELD_OUT)
    guess = _factorise(matrix, visible & ~aside, rank)
    if not _differ(guess, matrix, aside) <= _TRUSTED:
        return None
    found = _factorise(matrix, visible, rank)
    return torch.where(visible, matrix, found) if _differ(guess, found, ~visible) <= _TRUSTED else None


def _differ(one: Tensor, other: Tensor, where: Tensor) -> float:
    """Their distance there, in lengths of the second; not a number where one is none."""
    return float((one - other)[where].norm() / other[where].norm())


def _factorise(matrix: Tensor, visible: Tensor, rank: int) -> Tensor:
    """The matrix of that rank nearest to the visible entries: by alternating least squares on a part, then on all."""
    mask = visible.to(matrix)
    seen = matrix * mask
    share = (_WORK / (mask.numel() * rank**2)) ** 0.5
    rows, columns = (_densest(mask, side, max(4 * rank, int(share * mask.shape[side]))) for side in (0, 1))
    left = _left_factor(seen[rows][:, columns], mask[rows][:, columns], rank)
    right = _solve(mask[rows].T, seen[rows].T, left)
    left = _solve(mask, seen, right)
    return left @ _solve(mask.T, seen.T, left).T


def _densest(mask: Tensor, side: int, count: int) -> Tensor:
    """The rows (side 0) or columns with the most visible entries, in their order."""
    return mask.sum(1 - side).argsort(descending=True)[:count].sort().values


def _left_factor(seen: Tensor, mask: Tensor, rank: int) -> Tensor:
    """Alternating least squares, from the singular vectors of what is visible."""
    right = torch.randn(seen.shape[1], rank, generator=seeded(0, "start"), dtype=seen.dtype).to(seen.device)
    for _ in range(_POWERS):
        right = torch.linalg.qr(seen.T @ (seen @ right)).Q
    across, turned = mask.T.contiguous(), seen.T.contiguous()
    errors = [torch.inf] * _STALLED
    for _ in range(_ROUNDS):
        left = _solve(mask, seen, right)
        right = _solve(across, turned, left)
        errors.append(float((left @ right.T * mask - seen).norm() / seen.norm()))
        if errors[-1] <= _EXACT or not errors[-1] < 0.99 * errors[-1 - _STALLED]:
            break
    return left


def _solve(mask: Tensor, seen: Tensor, factor: Tensor) -> Tensor:
    """For each row of ``seen`` its coefficients in the factor's columns, by least squares on what the mask shows."""
    rank = factor.shape[1]
    products = (factor[:, :, None] * factor[:, None]).flatten(1)
    systems = (mask @ products).unflatten(1, (rank, rank))
    ridge = _RIDGE * systems.diagonal(dim1=-2, dim2=-1).mean(-1)
    # A row of which this part shows nothing has no coefficients; any other number would do.
    ridge = torch.where(ridge > 0, ridge, 1.0)
    systems = systems + ridge[:, None, None] * torch.eye(rank).to(systems)
    return torch.linalg.solve(systems, (seen @ factor)[..., None])[..., 0]
