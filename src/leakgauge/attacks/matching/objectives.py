"""How far a candidate's update is from the observed one: a scalar, zero when they agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.types import ParamTree

_TINY = 1e-30  # keeps 0/0 finite when an update vanishes


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


class Objective(Protocol):
    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor: ...


@dataclass(frozen=True)
class Cosine:
    """1 - <a, b> / (|a| |b|), one angle over all tensors [Geiping et al., 2020, Eq. 4]; blind to length."""

    weighting: Weighting = Uniform()

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        left, right = _weighted(candidate, self.weighting), _weighted(observed, self.weighting)
        # The lengths one by one: the product of their squares underflows in float32 for updates shorter than 1e-8.
        lengths = tree.dot(left, left).clamp_min(_TINY).sqrt() * tree.dot(right, right).clamp_min(_TINY).sqrt()
        return 1 - tree.dot(left, right) / lengths


@dataclass(frozen=True)
class Euclidean:
    """|a - b|^2 / |b|^2 [Zhu et al., 2019]; relative, so that a prior's weight means the same for every model."""

    weighting: Weighting = Uniform()

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        target = _weighted(observed, self.weighting)
        residual = tree.sub(_weighted(candidate, self.weighting), target)
        return tree.dot(residual, residual) / tree.dot(target, target).clamp_min(_TINY)


@dataclass(frozen=True)
class L1:
    """|a - b|_1 / |b|_1: the likelihood of Laplace noise, and less impressed by single large entries."""

    weighting: Weighting = Uniform()

    def __call__(self, candidate: ParamTree, observed: ParamTree) -> Tensor:
        target = _weighted(observed, self.weighting)
        residual = tree.sub(_weighted(candidate, self.weighting), target)
        return _absolute_sum(residual) / _absolute_sum(target).clamp_min(_TINY)


def _absolute_sum(params: ParamTree) -> Tensor:
    return torch.stack([tensor.abs().sum() for tensor in params.values()]).sum()


def _weighted(params: ParamTree, weighting: Weighting) -> ParamTree:
    weights = weighting(len(params))
    if all(weight == 1.0 for weight in weights):
        return params
    return {name: weight * tensor for weight, (name, tensor) in zip(weights, params.items(), strict=True)}
