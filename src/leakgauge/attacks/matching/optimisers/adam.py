"""Adam and what is made of it by feeding it something else than the gradient."""

from __future__ import annotations

import hashlib
from abc import ABC
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.attacks.matching.optimisers.base import Optimiser, project
from leakgauge.attacks.matching.parametrisations import Box
from leakgauge.randomness import seeded
from leakgauge.schedules import CosineDecay, Schedule
from leakgauge.types import Outcome

_AT_REST = 1e-6
_SETTLED = 1e-5


@dataclass(frozen=True)
class AdamState:
    candidate: Tensor
    converged: Tensor
    first: Tensor
    second: Tensor
    step: int
    box: Box | None
    seeds: Tensor | None = None
    """One per restart, a fingerprint of where it started, for an optimiser that draws noise."""


@dataclass(frozen=True)
class AdamFamily(Optimiser[AdamState], ABC):
    """What Adam and its signed form share: moments, schedule and projection onto the box."""

    # Adam rests when its rate runs out along with the budget, whatever the loss still has to give.
    outcome_at_rest: ClassVar[Outcome] = Outcome.STEPS_EXHAUSTED
    learning_rate: float = 0.05
    schedule: Schedule = CosineDecay()

    def direction(self, gradient: Tensor) -> Tensor:
        """What the moments are taken of."""
        return gradient

    def start(self, candidate: Tensor, box: Box | None) -> AdamState:
        still = torch.zeros(len(candidate), dtype=torch.bool, device=candidate.device)
        return AdamState(candidate, still, torch.zeros_like(candidate), torch.zeros_like(candidate), 0, box)

    def advance(self, state: AdamState, loss: Tensor, gradient: Tensor, spent: float) -> AdamState:
        del loss
        return _adam_step(state, self.direction(gradient), self.learning_rate * self.schedule(spent))

    def renew(self, state: AdamState, *, anew: bool = True) -> AdamState:
        del anew
        return state  # moments fade by themselves


@dataclass(frozen=True)
class Adam(AdamFamily):
    """Adam [Kingma & Ba, 2015], projected onto the box after each step."""


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
class Langevin(AdamFamily):
    """Adam whose every step of learning rate r adds Gaussian noise of size r * ``noise`` [Yin et al., 2021].

    The noise is a function of the restart's start and the step, so that the attack's generator decides it, it is the
    same however many restarts run beside, and an interrupted run goes on as it would have.
    """

    noise: float = 0.2

    def start(self, candidate: Tensor, box: Box | None) -> AdamState:
        seeds = torch.tensor([_fingerprint(row) for row in candidate], device=candidate.device)
        return replace(super().start(candidate, box), seeds=seeds)

    def advance(self, state: AdamState, loss: Tensor, gradient: Tensor, spent: float) -> AdamState:
        assert state.seeds is not None
        moved = super().advance(state, loss, gradient, spent)
        streams = (seeded(seed, "langevin", state.step) for seed in state.seeds.tolist())
        noise = torch.stack([torch.randn(state.candidate.shape[1:], generator=stream) for stream in streams])
        size = self.learning_rate * self.schedule(spent) * self.noise
        return replace(moved, candidate=project(moved.candidate + size * noise.to(moved.candidate), state.box))


def _fingerprint(row: Tensor) -> int:
    content = row.detach().cpu().to(torch.float64).contiguous().numpy().tobytes()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> 1


def _adam_step(state: AdamState, direction: Tensor, learning_rate: float) -> AdamState:
    step = state.step + 1
    first = torch.lerp(state.first, direction, 0.1)
    second = torch.lerp(state.second, direction.square(), 0.001)
    unbiased = first / (1 - 0.9**step)
    scale = (second / (1 - 0.999**step)).sqrt() + 1e-8
    candidate = project(state.candidate - learning_rate * unbiased / scale, state.box)
    return replace(
        state,
        candidate=candidate,
        # At rest: no further step of this size moves a pixel by a visible amount.
        converged=((candidate - state.candidate).abs().flatten(1).amax(dim=1) < _AT_REST) & (learning_rate < _SETTLED),
        first=first,
        second=second,
        step=step,
    )
