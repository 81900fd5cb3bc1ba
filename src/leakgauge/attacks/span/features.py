"""The inputs of chosen layers, and how a loss of them changes with the images: one value and one cotangent sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakgauge.attacks.matching.engine.layers import Asked, LayerPoint, Maybe, add_maybe
from leakgauge.attacks.matching.engine.network import Network

Slots = Mapping[int, Tensor]
"""Values, or cotangents, of slots of a network."""


@dataclass(frozen=True, eq=False)
class FeatureSweep:
    """A network as far as some of its slots depend on it; what lies behind them is never run."""

    network: Network
    slots: frozenset[int]
    places: tuple[int, ...]
    weights: Mapping[int, Any]

    @classmethod
    def at(cls, network: Network, tensors: Mapping[str, Tensor], slots: Iterable[int]) -> FeatureSweep:
        """Take the network at these parameters and buffers, for these slots."""
        wanted = frozenset(slots)
        needed, places = set(wanted), []
        for index in reversed(range(len(network.steps))):
            if network.steps[index].output in needed:
                needed |= set(network.steps[index].inputs)
                places.append(index)
        places.reverse()
        tensors = network.with_constants(tensors)
        return cls(network, wanted, tuple(places), {at: network.steps[at].layer.weights(tensors) for at in places})

    def values(self, images: Tensor) -> tuple[dict[int, Tensor], dict[int, Any]]:
        """The slots at these images, and what their cotangents will need."""
        held: dict[int, Tensor] = {0: images}
        memories: dict[int, Any] = {}
        with torch.no_grad():
            for index in self.places:
                step = self.network.steps[index]
                inputs = [held[slot] for slot in step.inputs]
                held[step.output], memories[index] = step.layer.value(self.weights[index], inputs)
        return {slot: held[slot] for slot in self.slots}, memories

    def pull(self, memories: dict[int, Any], cotangents: Slots) -> Maybe:
        """The cotangent of the images that belongs to those of the slots."""
        found: dict[int, Maybe] = dict(cotangents)
        with torch.no_grad():
            for index in reversed(self.places):
                step = self.network.steps[index]
                gy = found.pop(step.output, None)
                if gy is None:
                    continue
                asked = Asked([slot in self.network.seen for slot in step.inputs], None)
                at = LayerPoint(self.weights[index], memories[index])
                for slot, cotangent in zip(step.inputs, step.layer.cotangent(at, gy, asked)):
                    found[slot] = add_maybe(found.get(slot), cotangent)
        return found.get(0)
