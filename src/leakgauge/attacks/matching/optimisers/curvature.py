"""What a quasi-Newton method remembers of the slopes it has seen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class CurvatureMemory:
    """The last pairs (move, change of slope) of each restart and their products; one optimiser run owns the arrays.

    Pairs sit in a ring of ``history`` slots; empty slots hold zeros.
    """

    moves: Tensor  # restarts history variables: S
    changes: Tensor  # restarts history variables: Y
    cross: Tensor  # restarts history history: S Y^T
    squares: Tensor  # restarts history history: Y Y^T
    filled: Tensor  # restarts: pairs written since the last reset

    @classmethod
    def empty(cls, history: int, like: Tensor) -> CurvatureMemory:
        restarts, variables = like.shape
        small = torch.zeros(restarts, history, history, dtype=torch.float64, device=like.device)
        return cls(
            moves=like.new_zeros(restarts, history, variables),
            changes=like.new_zeros(restarts, history, variables),
            cross=small,
            squares=small.clone(),
            filled=torch.zeros(restarts, dtype=torch.long, device=like.device),
        )

    def remember(self, move: Tensor, change: Tensor, *, where: Tensor) -> CurvatureMemory:
        """Write the pair for the restarts in ``where`` whose curvature is safely positive."""
        product = (move * change).sum(dim=1)
        sound = where & (product > 1e-8 * move.norm(dim=1) * change.norm(dim=1))
        for row in sound.nonzero().flatten().tolist():
            slot = int(self.filled[row]) % self.moves.shape[1]
            self.moves[row, slot] = move[row]
            self.changes[row, slot] = change[row]
            self.cross[row, :, slot] = (self.moves[row] @ change[row]).double()
            self.cross[row, slot, :] = (self.changes[row] @ move[row]).double()
            self.squares[row, :, slot] = self.squares[row, slot, :] = (self.changes[row] @ change[row]).double()
        return replace(self, filled=self.filled + sound)

    def forget(self, where: Tensor) -> CurvatureMemory:
        if not bool(where.any()):
            return self
        for array in (self.moves, self.changes, self.cross, self.squares):
            array[where] = 0
        return replace(self, filled=torch.where(where, torch.zeros_like(self.filled), self.filled))

    def solve(self, vector: Tensor, guess: Tensor) -> Tensor:
        """The inverse-Hessian estimate times ``vector``; ``guess`` scales it while there is no pair.

        In the compact form of Byrd, Nocedal & Schnabel [1994, Eq. 3.1], which reads each pair twice in a matrix product
        instead of once per step of a recursion.
        """
        history = self.moves.shape[1]
        # Slots from the oldest pair to the newest; the empty ones, all zero, come first.
        order = (self.filled[:, None] + torch.arange(history, device=vector.device)) % history
        used = torch.arange(history, 0, -1, device=vector.device) <= self.filled[:, None]

        def ordered(matrix: Tensor) -> Tensor:
            return torch.take_along_dim(torch.take_along_dim(matrix, order[:, :, None], 1), order[:, None, :], 2)

        cross, squares = ordered(self.cross), ordered(self.squares)
        diagonal = cross.diagonal(dim1=1, dim2=2)
        upper = cross.triu() + torch.diag_embed((~used).double())
        newest = diagonal[:, -1] / squares[:, -1, -1].clamp_min(1e-300)
        scale = torch.where(self.filled > 0, newest, guess.double())

        along = torch.take_along_dim((self.moves @ vector[:, :, None]).double()[..., 0], order, 1)
        across = torch.take_along_dim((self.changes @ vector[:, :, None]).double()[..., 0], order, 1)
        inner = torch.linalg.solve_triangular(upper, along[..., None], upper=True)
        right = diagonal[..., None] * inner + scale[:, None, None] * (squares @ inner - across[..., None])
        outer = torch.linalg.solve_triangular(upper.mT, right, upper=False)

        def by_slot(weights: Tensor) -> Tensor:
            return torch.zeros_like(weights).scatter(1, order, weights).to(vector.dtype)[:, None, :]

        moved = by_slot(outer[..., 0]) @ self.moves - by_slot(scale[:, None] * inner[..., 0]) @ self.changes
        return scale[:, None].to(vector.dtype) * vector + moved[:, 0]
