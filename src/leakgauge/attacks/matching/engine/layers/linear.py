"""The fully connected layer, on vectors or on rows of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks.matching.engine.layers.affine import Affine
from leakgauge.attacks.matching.engine.layers.base import Maybe


@dataclass(frozen=True)
class Linear(Affine):
    def multiply(self, x: Tensor, kernel: Tensor, offset: Maybe) -> Tensor:
        return torch.nn.functional.linear(x, kernel, offset)

    def multiply_transposed(self, gy: Tensor, kernel: Tensor, x: Tensor) -> Tensor:
        return gy @ kernel

    def kernel_gradient(self, gy: Tensor, x: Tensor, kernel: Tensor) -> Tensor:
        return gy.flatten(0, -2).mT @ x.flatten(0, -2)

    def sum_outputs(self, gy: Tensor) -> Tensor:
        return gy.flatten(0, -2).sum(dim=0)

    def per_output(self, vector: Tensor) -> Tensor:
        return vector
