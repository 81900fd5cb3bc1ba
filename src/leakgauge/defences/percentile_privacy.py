"""NVFlare's PercentilePrivacy: the largest entries, truncated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import UpdateTransform
from leakgauge.types import ParamTree

_SLACK = 1 + 1e-5
"""The bound is met up to rounding."""

_TINY = 1e-30


@dataclass(frozen=True)
class PercentilePrivacy(UpdateTransform):
    """Zero the ``percentile`` per cent of all entries with the least size, and truncate the others to +-``gamma``.

    Selective sharing [Shokri and Shmatikov, 2015] as NVFlare deploys it, with its defaults: nine tenths of the entries
    leave, and a parameter that is one number as it is. ``gamma`` is of weights, and of one local step where a client
    makes several. No noise, so no guarantee. An attacker who knows it matches what is visible as truncated, and asks of
    the rest that none is larger than the smallest that is visible.
    """

    lengths: ClassVar[tuple[str, ...]] = ("gamma",)

    percentile: float = 10.0
    gamma: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.percentile <= 100:
            raise InvalidCase(f"PercentilePrivacy(percentile=...) must lie in [0, 100], got {self.percentile}.")
        if not self.gamma > 0:
            raise InvalidCase(f"PercentilePrivacy(gamma=...) must be positive, got {self.gamma}; correct it.")

    def transform(self, params: ParamTree, *, generator: Generator) -> ParamTree:
        del generator
        cutoff = percentile(tree.flatten(params).abs(), self.percentile)
        return {
            name: self._truncate(tensor * (tensor.abs() >= cutoff)) if tensor.ndim else tensor
            for name, tensor in params.items()
        }

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        seen = tree.flatten(observed)
        kept = seen != 0
        smallest = torch.where(kept, seen.abs(), torch.inf).amin()
        # In units of the candidate's own length, since the update may have been scaled afterwards.
        whole = tree.flatten({name: self._truncate(tensor.detach()) for name, tensor in params.items()})
        visible = torch.where(kept, whole, 0.0).norm()
        bound = _SLACK * smallest * visible / seen.norm().clamp_min(_TINY)
        return {name: self._seen(tensor, observed[name] != 0, bound) for name, tensor in params.items()}

    def _seen(self, tensor: Tensor, kept: Tensor, bound: Tensor) -> Tensor:
        excess = tensor - torch.minimum(torch.maximum(tensor, -bound), bound)
        return torch.where(kept, self._truncate(tensor), excess)

    def _truncate(self, tensor: Tensor) -> Tensor:
        return tensor if self.gamma == math.inf or not tensor.ndim else tensor.clamp(-self.gamma, self.gamma)


def percentile(values: Tensor, share: float) -> Tensor:
    """The value below which ``share`` per cent of the values lie, between two of them in proportion.

    >>> percentile(torch.tensor([3.0, 1.0, 2.0, 5.0]), 50.0)
    tensor(2.5000)
    """
    # torch.quantile has a limit of 16 million values, which models have.
    ordered = values.sort().values
    place = share / 100 * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (place - math.floor(place)) * (high - low)
