"""Images whose maps are those that were found: least squares, image by image, through the first layers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.attacks.matching.engine.layers import Convolution
from leakgauge.attacks.matching.engine.network import Network
from leakgauge.attacks.span.features import FeatureSweep
from leakgauge.types import ParamTree

EARLIEST = 2
"""So many of the earliest maps that are known are aimed at: later ones follow from them."""


class KnownCotangents(NamedTuple):
    """A convolution whose cotangents are known and whose inputs are not: its gradient is linear in these."""

    slot: int
    layer: Convolution
    cotangents: Tensor
    gradient: Tensor

    def distance(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The squared distance of the gradient of these inputs, relative to that observed, and its derivative."""
        away = self.layer.kernel_gradient(self.cotangents, values, self.gradient) - self.gradient
        length = self.gradient.square().sum()
        slope = self.layer.multiply_transposed(self.cotangents, away, values)
        return away.square().sum() / length, 2 * slope / length


@dataclass(frozen=True, eq=False)
class MapLoss:
    """The squared distance of an image's maps from those wanted, relative to the latter, for each image.

    Of a lone image, what the gradients of layers further ahead say of their inputs comes to it: too little to solve for
    these, but said nearer to the image.
    """

    sweep: FeatureSweep
    wanted: Mapping[int, Tensor]
    lengths: Mapping[int, Tensor]
    ahead: tuple[KnownCotangents, ...]

    @classmethod
    def of(
        cls,
        network: Network,
        tensors: ParamTree,
        maps: Mapping[int, Tensor],
        ahead: Sequence[KnownCotangents],
        like: Tensor,
    ) -> MapLoss:
        slots = sorted(maps)[:EARLIEST]
        wanted = {slot: maps[slot].to(like) for slot in slots}
        lengths = {slot: one.flatten(1).square().sum(dim=1) for slot, one in wanted.items()}
        terms = tuple(one._replace(cotangents=one.cotangents.to(like), gradient=one.gradient.to(like)) for one in ahead)
        used = terms if len(wanted[slots[0]]) == 1 else ()
        return cls(FeatureSweep.at(network, tensors, {*slots, *(one.slot for one in used)}), wanted, lengths, used)

    def at(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The distance of each image, and its gradient."""
        values, memories = self.sweep.values(images)
        total, cotangents = images.new_zeros(len(images)), dict[int, Tensor]()
        for slot, wanted in self.wanted.items():
            away = values[slot] - wanted
            total = total + away.flatten(1).square().sum(dim=1) / self.lengths[slot]
            cotangents[slot] = 2 * away / self.lengths[slot].view(-1, *[1] * (away.ndim - 1))
        for term in self.ahead:
            distance, slope = term.distance(values[term.slot])
            total = total + distance
            cotangents[term.slot] = cotangents[term.slot] + slope if term.slot in cotangents else slope
        gradient = self.sweep.pull(memories, cotangents)
        return total, torch.zeros_like(images) if gradient is None else gradient
