"""Which input positions a convolution sees from each of its output positions."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.attacks.matching.engine.layers import Convolution

Sides = tuple[int, ...]


class Taps(NamedTuple):
    """A row for each output position, a column for each place of the kernel: the input position, -1 in the padding."""

    positions: Tensor
    inputs: int
    """How many input positions there are."""

    @classmethod
    def of(cls, layer: Convolution, kernel: Sides, inputs: Sides, outputs: Sides) -> Taps:
        """All positions in the order in which a map is flattened."""
        places = torch.cartesian_prod(*(torch.arange(side) for side in outputs)).view(-1, len(outputs))
        stride, padding, dilation = (torch.tensor(one) for one in (layer.stride, layer.padding, layer.dilation))
        columns = []
        for offset in product(*(range(side) for side in kernel)):
            seen = places * stride - padding + torch.tensor(offset) * dilation
            inside = ((seen >= 0) & (seen < torch.tensor(inputs))).all(dim=1)
            flat = torch.zeros(len(seen), dtype=torch.long)
            for axis, side in enumerate(inputs):
                flat = flat * side + seen[:, axis]
            columns.append(torch.where(inside, flat, -1))
        return cls(torch.stack(columns, dim=1), prod(inputs))

    @property
    def overlap(self) -> bool:
        """Whether some input position is seen from several output positions."""
        seen = self.positions[self.positions >= 0]
        return len(seen) > len(seen.unique())

    def cut(self, maps: Tensor) -> Tensor:
        """The patches of maps, channels x inputs each: maps x outputs x channels x places of the kernel."""
        padded = torch.cat([maps, maps.new_zeros(*maps.shape[:-1], 1)], dim=-1)  # where -1 finds zeros
        return padded[..., self.positions].movedim(-2, -3)
