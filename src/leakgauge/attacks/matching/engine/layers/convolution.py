"""Convolutions of any dimension; padding other than by zeros is a layer of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks.matching.engine.layers.affine import Affine
from leakgauge.attacks.matching.engine.layers.base import Maybe

_aten = torch.ops.aten


@dataclass(frozen=True)
class Convolution(Affine):
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def multiply(self, x: Tensor, kernel: Tensor, offset: Maybe) -> Tensor:
        zeros = [0] * len(self.stride)
        return _aten.convolution(x, kernel, offset, self.stride, self.padding, self.dilation, False, zeros, self.groups)

    def multiply_transposed(self, gy: Tensor, kernel: Tensor, x: Tensor) -> Tensor:
        return self._backward(gy, x, kernel, [True, False, False])[0]

    def kernel_gradient(self, gy: Tensor, x: Tensor, kernel: Tensor) -> Tensor:
        return self._backward(gy, x, kernel, [False, True, False])[1]

    def _backward(self, gy: Tensor, x: Tensor, kernel: Tensor, mask: list[bool]) -> tuple[Tensor, ...]:
        zeros = [0] * len(self.stride)
        return _aten.convolution_backward(
            gy, x, kernel, None, self.stride, self.padding, self.dilation, False, zeros, self.groups, mask
        )

    def sum_outputs(self, gy: Tensor) -> Tensor:
        return gy.sum(dim=[0, *range(2, gy.ndim)])

    def per_output(self, vector: Tensor) -> Tensor:
        return vector.view(-1, *[1] * len(self.stride))
