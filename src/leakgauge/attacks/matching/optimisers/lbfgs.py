"""Quasi-Newton steps on a box, all restarts in lockstep."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.attacks.matching.optimisers.base import Optimiser, project
from leakgauge.attacks.matching.parametrisations import Box
from leakgauge.errors import InvalidCase


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


_LOOK_EVERY = 50
_PROGRESS = 1e-5
"""L-BFGS has converged when so many steps lower the loss by less than this share of it."""


@dataclass(frozen=True)
class LBFGSState:
    """``point``, ``value``, ``slope``: the last accepted iterate; ``candidate`` = its trial along ``direction``."""

    candidate: Tensor
    converged: Tensor
    point: Tensor
    value: Tensor
    slope: Tensor
    direction: Tensor
    length: Tensor
    memory: CurvatureMemory
    box: Box | None
    step: int
    before: Tensor
    """The value at the last look for progress."""


@dataclass(frozen=True)
class LBFGS(Optimiser[LBFGSState]):
    """Limited-memory BFGS on a box: quasi-Newton on the free variables, projected backtracking line search.

    [Liu & Nocedal, 1989; Bertsekas, 1982.] One evaluation per step; every restart keeps its own curvature and step
    length, so restarts stay independent although they are evaluated together. A step that fails the Armijo condition
    is shortened; when it vanishes even from fresh curvature, the restart has converged.
    """

    history: int = 50
    sufficient_decrease: float = 1e-4
    shrink: float = 0.4
    first_move: float = 0.1

    def __post_init__(self) -> None:
        if self.history < 1:
            raise InvalidCase(f"LBFGS needs history >= 1, got {self.history}; raise it.")

    def start(self, candidate: Tensor, box: Box | None) -> LBFGSState:
        flat = candidate.flatten(1)
        restarts = len(flat)
        return LBFGSState(
            candidate=candidate,
            converged=torch.zeros(restarts, dtype=torch.bool, device=flat.device),
            point=flat,
            value=torch.full((restarts,), float("inf"), dtype=flat.dtype, device=flat.device),
            slope=torch.zeros_like(flat),
            direction=torch.zeros_like(flat),
            length=torch.ones(restarts, dtype=flat.dtype, device=flat.device),
            memory=CurvatureMemory.empty(self.history, flat),
            box=box,
            step=0,
            before=torch.full((restarts,), float("inf"), dtype=flat.dtype, device=flat.device),
        )

    def advance(self, state: LBFGSState, loss: Tensor, gradient: Tensor, spent: float) -> LBFGSState:
        del spent
        trial, slope = state.candidate.flatten(1), gradient.flatten(1)
        move = trial - state.point
        enough = state.value + self.sufficient_decrease * (state.slope * move).sum(dim=1)
        accepted = (torch.isfinite(loss) & (loss <= enough.nan_to_num(nan=float("inf")))) & ~state.converged
        first = torch.isinf(state.value)
        # Curvature among the variables that moved: what those at a bound would have done has no part in it.
        change = (slope - state.slope) * (move != 0)
        memory = state.memory.remember(move, change, where=accepted & ~first)
        point = torch.where(accepted[:, None], trial, state.point)
        value = torch.where(accepted, loss, state.value)
        slope = torch.where(accepted[:, None], slope, state.slope)

        length = torch.where(accepted, torch.ones_like(state.length), state.length * self.shrink)
        # Without curvature the first move is a guess of size `first_move`, so it may shrink much further.
        stuck = length < torch.where(memory.filled > 0, 1e-4, 1e-7)
        converged = state.converged | (stuck & (memory.filled == 0))
        memory = memory.forget(stuck)
        length = torch.where(stuck, torch.ones_like(length), length)

        renew = accepted | stuck
        direction = state.direction
        if bool(renew.any()):
            direction = torch.where(renew[:, None], self._direction(point, slope, memory, state.box), direction)
        candidate = project(point + length[:, None] * direction, state.box)
        converged = converged | (candidate == point).all(dim=1) & accepted
        step, before = state.step + 1, state.before
        if step % _LOOK_EVERY == 0:
            converged = converged | (value > (1 - _PROGRESS) * before) & torch.isfinite(before)
            before = value
        return replace(
            state,
            candidate=torch.where(converged[:, None], point, candidate).view_as(state.candidate),
            converged=converged,
            point=point,
            value=value,
            slope=slope,
            direction=direction,
            length=length,
            memory=memory,
            step=step,
            before=before,
        )

    def renew(self, state: LBFGSState, *, anew: bool = True) -> LBFGSState:
        fresh = self.start(state.point.view_as(state.candidate), state.box)
        return fresh if anew else replace(fresh, memory=state.memory)

    def _direction(self, point: Tensor, slope: Tensor, memory: CurvatureMemory, box: Box | None) -> Tensor:
        free = torch.ones_like(point, dtype=torch.bool)
        if box is not None:
            # A variable at its bound that wants to leave the box stays where it is.
            free = ~(((point <= box[0]) & (slope > 0)) | ((point >= box[1]) & (slope < 0)))
        guess = self.first_move / slope.abs().amax(dim=1).clamp_min(1e-30)
        steepest = -slope * free
        newton = -memory.solve(slope * free, guess) * free
        descends = (newton * slope).sum(dim=1) < 0
        return torch.where(descends[:, None], newton, steepest * guess[:, None])
