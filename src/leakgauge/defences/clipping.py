"""Norm clipping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Generator

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import Departure, UpdateTransform
from leakgauge.types import ParamTree


@dataclass(frozen=True)
class Clipping(UpdateTransform):
    """Scale the whole update down to at most ``max_norm``: g * min(1, max_norm / |g|).

    Alone it hides only the length of the update; a cosine objective does not notice.
    """

    departure: ClassVar[Departure] = Departure.LENGTH
    lengths: ClassVar[tuple[str, ...]] = ("max_norm",)

    max_norm: float = 1.0

    def __post_init__(self) -> None:
        if not self.max_norm > 0:
            raise InvalidCase(f"Clipping(max_norm=...) must be positive, got {self.max_norm}.")

    def transform(self, params: ParamTree, *, generator: Generator) -> ParamTree:
        del generator
        return self._clip(params)

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        del observed
        return self._clip(params)

    def _clip(self, params: ParamTree) -> ParamTree:
        length = tree.norm(params)
        # max(length, max_norm) rather than a branch: exact when nothing is clipped, and safe under vmap.
        return (
            tree.scale(params, self.max_norm / length.clamp_min(self.max_norm))
            if self.max_norm < float("inf")
            else params
        )
