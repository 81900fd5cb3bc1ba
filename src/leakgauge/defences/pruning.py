"""Gradient pruning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import UpdateTransform
from leakgauge.types import ParamTree

_TINY = 1e-30
_SLACK = 1 + 1e-5
"""The bound is met up to rounding."""


@dataclass(frozen=True)
class Pruning(UpdateTransform):
    """Keep the largest-magnitude share of each tensor and zero the rest [Zhu et al., 2019; Huang et al., 2021].

    An attacker who knows the defence matches the entries that are visible, and asks of the others no more than that
    they are not larger than the smallest visible one.
    """

    keep: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise InvalidCase(f"Pruning(keep=...) must lie in (0, 1], got {self.keep}; it is the share that survives.")

    def transform(self, params: ParamTree, *, generator: Generator) -> ParamTree:
        del generator
        return tree.map_tensors(lambda tensor: keep_largest(tensor, self.keep), params)

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        return {name: self._visible(tensor, observed[name]) for name, tensor in params.items()}

    def _visible(self, tensor: Tensor, observed: Tensor) -> Tensor:
        """The entries that were kept, and by how much the others exceed what a pruned entry can be: 0 for the truth."""
        kept = observed != 0
        smallest = torch.where(kept, observed.abs(), torch.inf).amin()
        # In units of the candidate's own length, since the update may have been scaled afterwards.
        scale = _length(tensor.detach(), kept) / _length(observed, kept).clamp_min(_TINY)
        # Where more or fewer entries are visible than one pruning leaves, the smallest is no bound: nothing is asked.
        bound = torch.where(kept.sum() == survivors(tensor, self.keep), _SLACK * scale * smallest, torch.inf)
        # What is subtracted is fixed, which has the same derivative and leaves one operation to follow back.
        limit, now = torch.where(kept, 0.0, bound), tensor.detach()
        within = torch.minimum(torch.maximum(now, -limit), limit)
        return torch.where(kept | (now.abs() > limit), tensor - within, 0.0)


def keep_largest(tensor: Tensor, share: float) -> Tensor:
    """Zero all but the largest ``share`` of the entries (at least one); ties are broken so that the count is exact.

    >>> keep_largest(torch.tensor([1.0, -3.0, 2.0, 0.5]), 0.5)
    tensor([ 0., -3.,  2.,  0.])
    """
    kept = tensor.abs().flatten().topk(survivors(tensor, share)).indices
    mask = torch.zeros(tensor.numel(), dtype=torch.bool, device=tensor.device)
    mask[kept] = True
    return tensor * mask.view_as(tensor)


def survivors(tensor: Tensor, share: float) -> int:
    """How many entries are kept."""
    return max(1, round(share * tensor.numel()))


def _length(tensor: Tensor, kept: Tensor) -> Tensor:
    return torch.where(kept, tensor, 0.0).square().sum().sqrt()
