"""How far a candidate's update is from the observed one: a scalar, zero when they agree."""

from __future__ import annotations

import math
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
        if torch._C._functorch.is_functorch_wrapped_tensor(own):
            gradient, value = grad_and_value(lambda update: self(update, observed))(dict(candidate))
            return value, gradient
        length, target = (math.sqrt(max(float(one), TINY)) for one in (own, other))
        names, apart = list(candidate), list(candidate.values())
        there = [observed[name] for name in names]
        torch._foreach_mul_(apart, 1 / length)
        torch._foreach_add_(apart, there, alpha=-1 / target)
        half = _weighted_square(dict(zip(names, apart)), weights) / 2
        # With unit vectors a, b and D = |a - b|^2 / 2: dD/dg = (a (1 - D) - b) / |g| = ((a - b)(1 - D) - b D) / |g|
        vanishes = bool((own <= TINY) | (other <= TINY))  # neither is true of NaN, which is to stay
        along, back = (0.0, 1.0) if vanishes else (float(1 - half) / length, float(half) / (length * target))
        torch._foreach_mul_(apart, along)
        torch._foreach_add_(apart, there, alpha=-back)
        if any(weight != 1 for weight in weights):
            torch._foreach_mul_(apart, [weight**2 for weight in weights])
        return torch.ones_like(half) if vanishes else half, dict(zip(names, apart))


def _weighted_square(params: ParamTree, weights: tuple[float, ...]) -> Tensor:
    """|params|^2 with tensor i counting with its weight; not to be differentiated."""
    squares = torch.stack([tree.product(tensor, tensor) for tensor in params.values()])
    if all(weight == 1 for weight in weights):
        return squares.sum()
    return (squares * squares.new_tensor([weight**2 for weight in weights])).sum()


@dataclass(frozen=True)
class CosineByTensor(Objective):
    """The mean over tensors of 1 - cos, so that each counts the same, however long.

    One angle over everything looks at what is longest: with weights as they are drawn, the gradient of the head's bias
    has a length of about one and that of an early convolution 1e-2 to 1e-5 of it, yet only the latter tells where
    things are. ``tables`` names the tensors with a row for each position, such as a position embedding, whose gradient
    is the cotangent of each token: together they take half the weight, and each row has an angle of its own, because
    that of a class token would drown the others. What is nothing but rounding, such as the gradient of a bias before a
    norm, does not count.
    """

    tables: tuple[str, ...] = ()

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        weights = self._weights(observed)
        return torch.stack(
            [(weights[name] * _apart(self._rows(name, tensor), self._rows(name, observed[name]))[1]).sum()
             for name, tensor in candidate.items()]
        ).sum()  # fmt: skip

    def direction(self, candidate: ParamTree, observed: ParamTree) -> tuple[Tensor, dict[str, Tensor]]:
        weights, values, found = self._weights(observed), [], {}
        for name, tensor in candidate.items():
            own, other = self._rows(name, tensor), self._rows(name, observed[name])
            apart, half = _apart(own, other)
            # As in `Cosine`: dD/dg = ((a - b)(1 - D) - b D) / |g| for unit vectors a, b and D = |a - b|^2 / 2.
            scale = weights[name] / _lengths(own)
            found[name] = (scale * (apart * (1 - half) - other / _lengths(other) * half)).view_as(tensor)
            values.append((weights[name] * half).sum())
        return torch.stack(values).sum(), found

    def _rows(self, name: str, tensor: Tensor) -> Tensor:
        if name not in self.tables:
            return tensor.reshape(1, -1)
        return tensor.reshape(next((size for size in tensor.shape if size > 1), 1), -1)

    def _weights(self, observed: ParamTree) -> dict[str, Tensor]:
        """For each row; they sum to one, half of it in the tables if there are any."""
        lengths = {name: _lengths(self._rows(name, tensor)) for name, tensor in observed.items()}
        total = torch.stack([length.square().sum() for length in lengths.values()]).sum().sqrt()
        counts = {
            name: (length > _ROUNDING * torch.finfo(length.dtype).eps * total).to(length)
            for name, length in lengths.items()
        }
        parts = [[name for name in counts if (name in self.tables) is chosen] for chosen in (False, True)]
        weights: dict[str, Tensor] = {}
        for part in filter(None, parts):
            number = torch.stack([counts[name].sum() for name in part]).sum().clamp_min(1)
            share = 0.5 if all(parts) else 1.0
            weights |= {name: share * counts[name] / number for name in part}
        return weights


_ROUNDING = 10
"""Times the precision of the numbers: a tensor that is shorter, as a share of the update, is rounding."""


def _lengths(rows: Tensor) -> Tensor:
    return rows.square().sum(dim=1, keepdim=True).clamp_min(TINY).sqrt()


def _apart(own: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The difference of the unit vectors along the rows, and half its square."""
    apart = own / _lengths(own) - other / _lengths(other)
    return apart, apart.square().sum(dim=1, keepdim=True) / 2


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
