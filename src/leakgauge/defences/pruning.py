"""Gradient pruning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import UpdateTransform
from leakgauge.types import ParamTree


@dataclass(frozen=True)
class Pruning(UpdateTransform):
    """Keep the largest-magnitude share of each tensor and zero the rest [Zhu et al., 2019; Huang et al., 2021].

    The zeros tell an attacker who knows the defence which entries carry information: it matches on those alone.
    """

    keep: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise InvalidCase(f"Pruning(keep=...) must lie in (0, 1], got {self.keep}; it is the share that survives.")

    def transform(self, params: ParamTree, *, generator: Generator) -> ParamTree:
        del generator
        return tree.map_tensors(lambda tensor: keep_largest(tensor, self.keep), params)

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        return {name: tensor * (observed[name] != 0) for name, tensor in params.items()}


def keep_largest(tensor: Tensor, share: float) -> Tensor:
    """Zero all but the largest ``share`` of the entries (at least one); ties are broken so that the count is exact.

    >>> keep_largest(torch.tensor([1.0, -3.0, 2.0, 0.5]), 0.5)
    tensor([ 0., -3.,  2.,  0.])
    """
    survivors = max(1, round(share * tensor.numel()))
    kept = tensor.abs().flatten().topk(survivors).indices
    mask = torch.zeros(tensor.numel(), dtype=torch.bool, device=tensor.device)
    mask[kept] = True
    return tensor * mask.view_as(tensor)
