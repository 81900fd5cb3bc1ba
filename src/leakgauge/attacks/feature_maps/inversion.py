"""Images whose maps are those that were found: least squares, image by image, through the first layers alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks.matching.engine.network import Network
from leakgauge.attacks.span.features import FeatureSweep
from leakgauge.types import ParamTree

EARLIEST = 2
"""So many of the earliest maps that are known are aimed at: later ones follow from them."""


@dataclass(frozen=True, eq=False)
class MapLoss:
    """The squared distance of an image's maps from those wanted, relative to the latter, for each image."""

    sweep: FeatureSweep
    wanted: Mapping[int, Tensor]
    lengths: Mapping[int, Tensor]

    @classmethod
    def of(cls, network: Network, tensors: ParamTree, maps: Mapping[int, Tensor], like: Tensor) -> MapLoss:
        slots = sorted(maps)[:EARLIEST]
        wanted = {slot: maps[slot].to(like) for slot in slots}
        lengths = {slot: one.flatten(1).square().sum(dim=1) for slot, one in wanted.items()}
        return cls(FeatureSweep.at(network, tensors, slots), wanted, lengths)

    def at(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The distance of each image, and its gradient."""
        values, memories = self.sweep.values(images)
        total, cotangents = images.new_zeros(len(images)), {}
        for slot, value in values.items():
            away = value - self.wanted[slot]
            total = total + away.flatten(1).square().sum(dim=1) / self.lengths[slot]
            cotangents[slot] = 2 * away / self.lengths[slot].view(-1, *[1] * (away.ndim - 1))
        gradient = self.sweep.pull(memories, cotangents)
        return total, torch.zeros_like(images) if gradient is None else gradient
