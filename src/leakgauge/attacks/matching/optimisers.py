"""How the variables move. An optimiser is a state machine: the attack evaluates ``state.candidate``, the optimiser
answers with the next one. All restarts advance in lockstep, each with its own state."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from leakgauge.attacks.matching.parametrisations import Box
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded

_AT_REST = 1e-6
_SETTLED = 1e-5
_LOOK_EVERY = 50
_PROGRESS = 1e-5
"""L-BFGS has converged when so many steps lower the loss by less than this share of it."""


class OptimiserState(Protocol):
    """``candidate`` is what to evaluate next; ``converged`` has one flag per restart."""

    @property
    def candidate(self) -> Tensor: ...

    @property
    def converged(self) -> Tensor: ...


State = TypeVar("State", bound=OptimiserState)


class Optimiser(Protocol, Generic[State]):
    def start(self, candidate: Tensor, box: Box | None) -> State: ...

    def advance(self, state: State, loss: Tensor, gradient: Tensor, spent: float) -> State:
        """The next candidate; ``spent`` is the share of the budget that is used up."""

    def renewed(self, state: State) -> State:
        """The state when what is minimised changes: losses and slopes from before no longer count."""


class Schedule(Protocol):
    """The learning rate's factor after a given fraction of the budget."""

    def __call__(self, fraction: float) -> float: ...


@dataclass(frozen=True)
class StepDecay:
    """Multiply by ``factor`` at each of the given fractions [Geiping et al., 2020, appendix C]."""

    at: tuple[float, ...] = (3 / 8, 5 / 8, 7 / 8)
    factor: float = 0.1

    def __call__(self, fraction: float) -> float:
        return self.factor ** sum(fraction >= point for point in self.at)


@dataclass(frozen=True)
class CosineDecay:
    """Half a cosine from 1 to 0."""

    def __call__(self, fraction: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * fraction))


@dataclass(frozen=True)
class WarmUp:
    """Rise linearly from 0 over the first ``share`` of the budget, under another schedule."""

    schedule: Schedule = CosineDecay()
    share: float = 0.05

    def __call__(self, fraction: float) -> float:
        return min(1.0, fraction / self.share) * self.schedule(fraction)


@dataclass(frozen=True)
class AdamState:
    candidate: Tensor
    converged: Tensor
    first: Tensor
    second: Tensor
    step: int
    box: Box | None


@dataclass(frozen=True)
class AdamFamily(ABC):
    """What Adam and its signed form share: moments, schedule and projection onto the box."""

    learning_rate: float = 0.05
    schedule: Schedule = CosineDecay()

    @abstractmethod
    def direction(self, gradient: Tensor) -> Tensor:
        """What the moments are taken of."""

    def start(self, candidate: Tensor, box: Box | None) -> AdamState:
        still = torch.zeros(len(candidate), dtype=torch.bool, device=candidate.device)
        return AdamState(candidate, still, torch.zeros_like(candidate), torch.zeros_like(candidate), 0, box)

    def advance(self, state: AdamState, loss: Tensor, gradient: Tensor, spent: float) -> AdamState:
        del loss
        return _adam_step(state, self.direction(gradient), self.learning_rate * self.schedule(spent))

    def renewed(self, state: AdamState) -> AdamState:
        return state  # moments fade by themselves


@dataclass(frozen=True)
class Adam(AdamFamily):
    """Adam [Kingma & Ba, 2015], projected onto the box after each step."""

    def direction(self, gradient: Tensor) -> Tensor:
        return gradient


@dataclass(frozen=True)
class SignedAdam(AdamFamily):
    """Adam fed with the sign of the gradient [Geiping et al., 2020, section 4]."""

    def direction(self, gradient: Tensor) -> Tensor:
        return gradient.sign()


@dataclass(frozen=True)
class QuantisedSign(AdamFamily):
    """Adam fed with 0.8 q + 0.2 sign(G), q = clip(round(2 G / median|G|) / 2, -1, 1) [Ye et al., 2024, HFGradInv].

    Between the gradient and its sign: five levels, set by the median over the restart's own variables. Twice as long in
    the first ``doubled`` steps.
    """

    doubled: int = 100

    def direction(self, gradient: Tensor) -> Tensor:
        # The lower median, as torch takes it; where it is 0, whatever is not counts in full.
        median = gradient.abs().flatten(1).median(dim=1).values.clamp_min(torch.finfo(gradient.dtype).tiny)
        levels = (2 * (gradient / median.view(-1, *(1,) * (gradient.ndim - 1)))).round() / 2
        return 0.8 * levels.clamp(-1, 1) + 0.2 * gradient.sign()

    def advance(self, state: AdamState, loss: Tensor, gradient: Tensor, spent: float) -> AdamState:
        del loss
        direction = self.direction(gradient) * (2 if state.step < self.doubled else 1)
        return _adam_step(state, direction, self.learning_rate * self.schedule(spent))


@dataclass(frozen=True)
class LangevinState(AdamState):
    """``seeds``: one per restart, a fingerprint of where it started."""

    seeds: Tensor


@dataclass(frozen=True)
class Langevin(Adam):
    """Adam whose every step of learning rate r adds Gaussian noise of size r * ``noise`` [Yin et al., 2021].

    The noise is a function of the restart's start and the step, so that the attack's generator decides it, it is the
    same however many restarts run beside, and an interrupted run goes on as it would have.
    """

    noise: float = 0.2

    def start(self, candidate: Tensor, box: Box | None) -> LangevinState:
        seeds = torch.tensor([_fingerprint(row) for row in candidate], device=candidate.device)
        return LangevinState(**vars(super().start(candidate, box)), seeds=seeds)

    def advance(self, state: AdamState, loss: Tensor, gradient: Tensor, spent: float) -> AdamState:
        assert isinstance(state, LangevinState)
        moved = super().advance(state, loss, gradient, spent)
        streams = (seeded(seed, "langevin", state.step) for seed in state.seeds.tolist())
        noise = torch.stack([torch.randn(state.candidate.shape[1:], generator=stream) for stream in streams])
        size = self.learning_rate * self.schedule(spent) * self.noise
        return replace(moved, candidate=_project(moved.candidate + size * noise.to(moved.candidate), state.box))


def _fingerprint(row: Tensor) -> int:
    content = row.detach().cpu().to(torch.float64).contiguous().numpy().tobytes()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> 1


def _adam_step(state: AdamState, direction: Tensor, learning_rate: float) -> AdamState:
    step = state.step + 1
    first = torch.lerp(state.first, direction, 0.1)
    second = torch.lerp(state.second, direction.square(), 0.001)
    unbiased = first / (1 - 0.9**step)
    scale = (second / (1 - 0.999**step)).sqrt() + 1e-8
    candidate = _project(state.candidate - learning_rate * unbiased / scale, state.box)
    return replace(
        state,
        candidate=candidate,
        # At rest: no further step of this size moves a pixel by a visible amount.
        converged=((candidate - state.candidate).abs().flatten(1).amax(dim=1) < _AT_REST) & (learning_rate < _SETTLED),
        first=first,
        second=second,
        step=step,
    )


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
class LBFGS:
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
        candidate = _project(point + length[:, None] * direction, state.box)
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

    def renewed(self, state: LBFGSState) -> LBFGSState:
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


def _project(candidate: Tensor, box: Box | None) -> Tensor:
    if box is None:
        return candidate
    low, high = box
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return candidate.clamp(torch.as_tensor(low).to(candidate), torch.as_tensor(high).to(candidate))
    return candidate.clamp(low, high)
