"""Relative distances of two updates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.matching.objectives.base import TINY, WeighedObjective
from leakgauge.attacks.matching.objectives.weighting import weigh
from leakgauge.types import ParamTree


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
