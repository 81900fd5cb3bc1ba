"""How far a candidate's update is from the observed one: a scalar, zero when they agree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.func import grad_and_value

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.types import ParamTree


class Weighting(Protocol):
    """One weight per tensor of the update, in the order of the layers."""

    def __call__(self, count: int) -> tuple[float, ...]: ...


@dataclass(frozen=True)
class Uniform:
    """Every tensor counts as it is."""

    def __call__(self, count: int) -> tuple[float, ...]:
        return (1.0,) * count


@dataclass(frozen=True)
class Geometric:
    """Weight ``ratio**i`` for the i-th tensor: below 1 stresses early layers, above 1 late ones.

    >>> Geometric(0.5)(3)
    (1.0, 0.5, 0.25)
    """

    ratio: float = 0.9

    def __call__(self, count: int) -> tuple[float, ...]:
        return tuple(self.ratio**index for index in range(count))


@dataclass(frozen=True)
class Latest:
    """Only the last ``share`` of the tensors count: the layers nearest to the loss.

    >>> Latest(0.5)(4)
    (0.0, 0.0, 1.0, 1.0)
    """

    share: float = 1.0

    def __call__(self, count: int) -> tuple[float, ...]:
        kept = min(count, max(1, round(self.share * count)))
        return (0.0,) * (count - kept) + (1.0,) * kept


def weigh(params: ParamTree, weighting: Weighting) -> ParamTree:
    weights = weighting(len(params))
    if all(weight == 1.0 for weight in weights):
        return params
    return {name: weight * tensor for weight, (name, tensor) in zip(weights, params.items(), strict=True)}


TINY = 1e-30  # keeps 0/0 finite when an update vanishes


class Objective(ABC):
    @abstractmethod
    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor: ...

    def at(self, spent: float) -> Objective:
        """The objective when this share of the budget is spent."""
        del spent
        return self

    def direction(self, candidate: ParamTree, observed: ParamTree) -> tuple[Tensor, dict[str, Tensor]]:
        """The distance D and dD/d candidate; may use up ``candidate``."""
        gradient, value = grad_and_value(lambda update: self(update, observed))(dict(candidate))
        return value, gradient


@dataclass(frozen=True)
class WeighedObjective(Objective, ABC):
    """One that counts each tensor with a weight."""

    weighting: Weighting = Uniform()


@dataclass(frozen=True)
class Cosine(WeighedObjective):
    """1 - <a, b> / (|a| |b|), one angle over all tensors [Geiping et al., 2020, Eq. 4]; blind to length."""

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        left, right = weigh(candidate, self.weighting), weigh(observed, self.weighting)
        own, other = tree.dot(left, left), tree.dot(right, right)
        # The lengths one by one: the product of their squares underflows in float32 for updates shorter than 1e-8.
        length, target = own.clamp_min(TINY).sqrt(), other.clamp_min(TINY).sqrt()
        # Half the squared distance of the unit vectors is the same number, but 1 - cos itself keeps only seven digits
        # of the 1 in float32, which ends a quasi-Newton search long before the image is sharp.
        apart = {name: tensor / length - right[name] / target for name, tensor in left.items()}
        return torch.where((own > TINY) & (other > TINY), tree.dot(apart, apart) / 2, 1 - tree.dot(left, right))

    def direction(self, candidate: ParamTree, observed: ParamTree) -> tuple[Tensor, dict[str, Tensor]]:
        weights = self.weighting(len(candidate))
        own, other = (_weighted_square(one, weights) for one in (candidate, observed))
        length, target = own.clamp_min(TINY).sqrt(), other.clamp_min(TINY).sqrt()
        apart = {name: tensor.div_(length).sub_(observed[name] / target) for name, tensor in candidate.items()}
        half = _weighted_square(apart, weights) / 2
        # With unit vectors a, b and D = |a - b|^2 / 2: dD/dg = (a (1 - D) - b) / |g| = ((a - b)(1 - D) - b D) / |g|
        vanishes = (own <= TINY) | (other <= TINY)  # neither is true of NaN, which is to stay
        along = torch.where(vanishes, 0.0, (1 - half) / length)
        back = torch.where(vanishes, 1.0, half / (length * target))
        return torch.where(vanishes, 1.0, half), {
            name: tensor.mul_(weight**2 * along).sub_(observed[name] * (weight**2 * back))
            for weight, (name, tensor) in zip(weights, apart.items(), strict=True)
        }


def _weighted_square(params: ParamTree, weights: tuple[float, ...]) -> Tensor:
    """|params|^2 with tensor i counting with its weight; not to be differentiated."""
    return torch.stack([w**2 * tree.product(t, t) for w, t in zip(weights, params.values(), strict=True)]).sum()


@dataclass(frozen=True)
class Euclidean(WeighedObjective):
    """|a - b|^2 / |b|^2 [Zhu et al., 2019]; relative, so that a prior's weight means the same for every model."""

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        target = weigh(observed, self.weighting)
        residual = tree.sub(weigh(candidate, self.weighting), target)
        return tree.dot(residual, residual) / tree.dot(target, target).clamp_min(TINY)

    def direction(self, candidate: ParamTree, observed: ParamTree) -> tuple[Tensor, dict[str, Tensor]]:
        weights = self.weighting(len(candidate))
        scale = 1 / tree.squared_norm(weigh(observed, self.weighting)).clamp_min(TINY)
        # The difference first: expanding the square would cancel near the solution.
        residual = {name: tensor - observed[name] for name, tensor in candidate.items()}
        value = tree.squared_norm(weigh(residual, self.weighting)) * scale
        return value, {
            name: tensor * (2 * weight**2 * scale) for weight, (name, tensor) in zip(weights, residual.items())
        }


@dataclass(frozen=True)
class L1(WeighedObjective):
    """|a - b|_1 / |b|_1: the likelihood of Laplace noise, and less impressed by single large entries."""

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        target = weigh(observed, self.weighting)
        residual = tree.sub(weigh(candidate, self.weighting), target)
        return _absolute_sum(residual) / _absolute_sum(target).clamp_min(TINY)


def _absolute_sum(params: ParamTree) -> Tensor:
    return torch.stack([tensor.abs().sum() for tensor in params.values()]).sum()


@dataclass(frozen=True)
class LeavingOut(Objective):
    """Another objective on all tensors but those named, for a defence that spoils these [Balunović et al., 2022]."""

    objective: Objective
    tensors: tuple[str, ...]

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        return self.objective(self._kept(candidate), self._kept(observed))

    def at(self, spent: float) -> Objective:
        return replace(self, objective=self.objective.at(spent))

    def direction(self, candidate: ParamTree, observed: ParamTree) -> tuple[Tensor, dict[str, Tensor]]:
        value, found = self.objective.direction(self._kept(candidate), self._kept(observed))
        return value, {
            name: found[name] if name in found else torch.zeros_like(tensor) for name, tensor in candidate.items()
        }

    def _kept(self, params: ParamTree) -> ParamTree:
        return {name: tensor for name, tensor in params.items() if name not in self.tensors}


@dataclass(frozen=True)
class Stepwise(Objective):
    """Match the late layers first and add the earlier ones as the budget is spent [Ye et al., 2024, HFGradInv].

    The share of tensors that count grows in ``stages`` equal steps from ``first`` to all at ``until`` of the budget.
    """

    objective: WeighedObjective = Cosine()
    first: float = 0.1
    stages: int = 8
    until: float = 0.3

    def __post_init__(self) -> None:
        if self.stages < 1 or not 0 < self.until <= 1:
            raise InvalidCase(f"Stepwise needs stages >= 1 and 0 < until <= 1, got {self}; correct it.")

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        return self.objective(candidate, observed)

    def at(self, spent: float) -> Objective:
        stage = min(self.stages, int(spent / self.until * self.stages + 1e-9))  # 0.6 / 0.8 * 4 rounds below 3
        if stage == self.stages:
            return self.objective
        return replace(self.objective, weighting=Latest(self.first + (1 - self.first) * stage / self.stages))
