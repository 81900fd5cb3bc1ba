"""The pool that chooses; those that average are linear maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks.matching.engine.layers.base import Linearly, Memory, Weights


@dataclass(frozen=True)
class MaxPool(Linearly):
    """Each window passes on its largest entry; the positions are the switches."""

    pool: Callable[[Tensor], tuple[Tensor, Tensor]]
    spatial: int

    def value(self, weights: Weights, inputs: Sequence[Tensor], frozen: Memory = None) -> tuple[Tensor, Memory]:
        x = inputs[0]
        if frozen is not None:
            return self.along(frozen, x), frozen
        y, positions = self.pool(x)
        return y, (positions, x.shape)

    def along(self, memory: Memory, x: Tensor) -> Tensor:
        positions, _ = memory
        lead = positions.ndim - self.spatial
        return x.flatten(lead).gather(lead, positions.flatten(lead)).view(positions.shape)

    def back(self, memory: Memory, gy: Tensor) -> Tensor:
        positions, shape = memory
        lead = positions.ndim - self.spatial
        flat = torch.zeros_like(gy.flatten(lead)[..., :1]).expand(*gy.shape[:lead], shape[lead:].numel())
        return flat.scatter_add(lead, positions.flatten(lead), gy.flatten(lead)).view(shape)
