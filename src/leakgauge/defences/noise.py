"""Additive noise on the update."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import Departure, UpdateTransform
from leakgauge.types import ParamTree


class AdditiveNoise(UpdateTransform):
    """Independent zero-mean noise on every entry; the attacker's best prediction is the noiseless update."""

    @abstractmethod
    def draw(self, shape: torch.Size, *, generator: Generator) -> Tensor: ...

    def transform(self, params: ParamTree, *, generator: Generator) -> ParamTree:
        return tree.map_tensors(lambda tensor: tensor + self.draw(tensor.shape, generator=generator).to(tensor), params)

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        del observed
        return params


@dataclass(frozen=True)
class GaussianNoise(AdditiveNoise):
    """Add N(0, std^2) to every entry. Without clipping first this carries no privacy guarantee."""

    departure: ClassVar[Departure] = Departure.GAUSSIAN
    lengths: ClassVar[tuple[str, ...]] = ("std",)

    std: float = 1e-2

    def __post_init__(self) -> None:
        _require_non_negative("GaussianNoise(std=...)", self.std)

    def draw(self, shape: torch.Size, *, generator: Generator) -> Tensor:
        return self.std * torch.randn(shape, generator=generator)


@dataclass(frozen=True)
class LaplaceNoise(AdditiveNoise):
    """Add Laplace noise of the given scale (standard deviation sqrt(2) * scale) to every entry."""

    departure: ClassVar[Departure] = Departure.LAPLACE
    lengths: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float = 1e-2

    def __post_init__(self) -> None:
        _require_non_negative("LaplaceNoise(scale=...)", self.scale)

    def draw(self, shape: torch.Size, *, generator: Generator) -> Tensor:
        # In float64 the uniform draw cannot reach the pole of the inverse distribution function at 1/2.
        centred = torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5
        return -self.scale * centred.sign() * torch.log1p(-2 * centred.abs().clamp_max(0.5 - 1e-12))


def _require_non_negative(option: str, value: float) -> None:
    if not 0 <= value < float("inf"):
        raise InvalidCase(f"{option} must be at least 0 and finite, got {value}.")
