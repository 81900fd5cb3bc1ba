"""Quasi-Newton steps on a box, all restarts in lockstep."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks.matching.optimisers.base import Optimiser, project
from leakgauge.attacks.matching.optimisers.curvature import CurvatureMemory
from leakgauge.attacks.matching.parametrisations import Box
from leakgauge.errors import InvalidCase

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
        return LBFGSState(
            candidate=torch.where(converged[:, None], point, candidate).view_as(state.candidate),
            converged=converged,
            point=point,
            value=value,
            slope=slope,
            direction=direction,
            length=length,
            memory=memory,
            box=state.box,
            step=step,
            before=before,
        )

    def renew(self, state: LBFGSState) -> LBFGSState:
        return self.start(state.point.view_as(state.candidate), state.box)

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
