"""The angle between two updates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.matching.objectives.base import TINY, WeighedObjective
from leakgauge.attacks.matching.objectives.weighting import weigh
from leakgauge.types import ParamTree


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
