"""The gradient behind one step of Adam: its sign everywhere, and its size as far as rounding has left it.

The first step is rate * g / (|g| + eps), nearly rate * sign(g), so that a candidate's step hardly depends on the
candidate: there is no slope to follow. Read backwards it says more. With r = step / rate, |g| = eps |r| / (1 - |r|),
and 1 - |r| is above what float32 rounds away wherever |g| is below eps over that rounding, about a thousandth at the
usual rate and eps: in most networks most entries. Of the others the sign is left, and that they are larger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.matching.objectives import TINY, Cosine, Objective
from leakgauge.protocol import clients
from leakgauge.protocol.local_update import FedAvg, FedSGD
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.protocol.optimisers import LocalAdam, LocalAdamW, LocalOptimiser, Memory
from leakgauge.types import ParamTree

_ERROR = " +-"
"""Follows the name of a tensor; the error of its entries."""

_SCALE = "scale"
"""The size of a typical entry whose size is known."""

_KNOWN = 0.5
"""Relative error up to which the size of an entry counts as known."""

_ENOUGH = 0.2
"""Share of entries of known size from which sizes are matched, and not signs alone."""

_FLOORS = ((0.3, 3.0), (0.6, 0.3))
"""Up to which share of the budget which floor stands in for that of the end. Small entries are the ones best known and
outweigh all others; weighed so from the first step on, a search gets stuck in them."""


@dataclass(frozen=True)
class ReadGradient(Objective):
    """(g - h)^2 over the squared error of h and ``floor`` times a typical entry, relative; where only the sign of h and
    that |g| exceeds |h| are known, one-sided. Larger floors come first."""

    floor: float = 0.03

    def at(self, spent: float) -> ReadGradient:
        return next((ReadGradient(max(floor, self.floor)) for until, floor in _FLOORS if spent < until), self)

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        least = (self.floor * observed[_SCALE]).square()
        apart, whole = [], []
        for name, tensor in candidate.items():
            read, error = observed[name], observed[name + _ERROR]
            difference = tensor - read
            beyond = (error > _KNOWN * read.abs()) & (difference * read.sign() > 0)
            weight = 1 / (error.square() + least)
            apart.append((weight * torch.where(beyond, 0.0, difference).square()).sum())
            whole.append((weight * read.square()).sum())
        return torch.stack(apart).sum() / torch.stack(whole).sum().clamp_min(TINY)


@dataclass(frozen=True)
class SmoothSigns(Objective):
    """The angle between the observed signs and g / (|g| + ``softness`` times its mean in the tensor)."""

    softness: float = 1.0

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        soft = {
            name: tensor / (tensor.abs() + self.softness * tensor.abs().mean() + TINY)
            for name, tensor in candidate.items()
        }
        return Cosine()(soft, {name: observed[name].sign() for name in candidate})


@dataclass(frozen=True)
class SoftAdam(LocalOptimiser):
    """Adam with ``softness`` times the mean of sqrt(v) in the tensor in place of eps: several steps with a slope.

    What they add up to depends on the gradients by their ratios, steeply where one is small; softened, no entry
    outshouts the others. The attacker's surrogate, which no client runs.
    """

    adam: LocalAdam | LocalAdamW
    softness: float = 0.1

    def step(
        self, params: ParamTree, gradient: ParamTree, memory: Memory, *, index: int, rate: float
    ) -> tuple[dict[str, Tensor], Memory]:
        kept, (mean, square) = self.adam.step(params, gradient, memory, index=index, rate=rate)
        first, second = 1 - self.adam.beta1 ** (index + 1), 1 - self.adam.beta2 ** (index + 1)

        def soften(name: str, after: Tensor) -> Tensor:
            size = (square[name].clamp_min(torch.finfo(after.dtype).tiny) / second).sqrt()
            along = rate * mean[name] / first
            return after + along / (size + self.adam.eps) - along / (size + self.softness * size.mean() + self.adam.eps)

        return {name: soften(name, after) for name, after in kept.items()}, (mean, square)

    def gain(self, steps: int) -> float | None:
        return self.adam.gain(steps)


def soften_adam(observation: UpdateObservation) -> UpdateObservation:
    """A client of several steps of Adam as one whose steps have a slope; others as they are."""
    client = observation.local_update
    steps = clients.algorithm(client)
    if client is None or not isinstance(steps, FedAvg) or not isinstance(steps.optimiser, LocalAdam | LocalAdamW):
        return observation
    soft = replace(steps, optimiser=SoftAdam(steps.optimiser))
    return replace(observation, local_update=clients.with_algorithm(client, soft))


def is_one_adam_step(observation: UpdateObservation) -> bool:
    """Whether the update is known to be the first step of Adam or AdamW on the whole batch, and nothing else."""
    client, count = observation.local_update, observation.num_examples
    if not isinstance(client, FedAvg) or count is None or not isinstance(client.optimiser, LocalAdam | LocalAdamW):
        return False
    changed = client.clip_norm is not None or client.clip_value is not None
    return clients.local_steps(client, count) == 1 and client.accumulate == 1 and not changed


def read_gradient(observation: UpdateObservation) -> tuple[UpdateObservation, Objective]:
    """The step as the gradient it was made of, with its errors, and the objective that reads both."""
    client, state = observation.local_update, observation.state
    assert isinstance(client, FedAvg)
    found: dict[str, Tensor] = {}
    for name, step in observation.update.params.items():
        found[name], found[name + _ERROR] = _read(client, state.params[name], step)
    sizes = torch.cat([found[name].abs().flatten() for name in observation.update.params])
    errors = torch.cat([found[name + _ERROR].flatten() for name in observation.update.params])
    sized = (sizes > 0) & (errors <= _KNOWN * sizes)
    enough = bool(sized.float().mean() >= _ENOUGH)
    found[_SCALE] = sizes[sized].median() if enough else sizes.mean()
    read = replace(
        observation, local_update=FedSGD(), update=replace(observation.update, params=_as(found, state.dtype))
    )
    return read, ReadGradient() if enough else SmoothSigns()


def _read(client: FedAvg, weight: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of one tensor, and the error of its entries; of those with hardly any size left, the least."""
    adam, rate = client.optimiser, client.learning_rate
    assert isinstance(adam, LocalAdam | LocalAdamW)
    rounding = torch.finfo(weight.dtype).eps / 2
    before, moved = weight.double(), step.double()
    after = before - moved
    if isinstance(adam, LocalAdamW):
        moved = moved - rate * adam.weight_decay * before
    share = moved / rate
    # Of the rounded weights, and of the few operations of the step itself.
    blur = rounding * (torch.maximum(before.abs(), after.abs()) / rate + 2)
    left = torch.maximum(1 - share.abs(), blur)
    size = adam.eps * (1 - left).clamp_min(0) / left
    error = size * (blur / left)
    read = share.sign() * size
    if isinstance(adam, LocalAdam):
        read = read - adam.weight_decay * before
    return read, error


def _as(found: ParamTree, dtype: torch.dtype) -> dict[str, Tensor]:
    return tree.map_tensors(lambda tensor: tensor.to(dtype), found)
