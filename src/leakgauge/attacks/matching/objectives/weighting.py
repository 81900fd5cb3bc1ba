"""How much each tensor of an update counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from leakgauge.types import ParamTree


class Weighting(Protocol):
    """One weight per tensor of the update, in the order of the layers."""

    def __call__(self, count: int) -> tuple[float, ...]: ...


@dataclass(frozen=True)
class Uniform:
    """Every tensor counts as it is."""

    def __call__(self, count: int) -> tuple[float, ...]:
        return (1.0,) * count


@dataclass(frozen=True)
class Geometric:
    """Weight ``ratio**i`` for the i-th tensor: below 1 stresses early layers, above 1 late ones.

    >>> Geometric(0.5)(3)
    (1.0, 0.5, 0.25)
    """

    ratio: float = 0.9

    def __call__(self, count: int) -> tuple[float, ...]:
        return tuple(self.ratio**index for index in range(count))


@dataclass(frozen=True)
class Latest:
    """Only the last ``share`` of the tensors count: the layers nearest to the loss.

    >>> Latest(0.5)(4)
    (0.0, 0.0, 1.0, 1.0)
    """

    share: float = 1.0

    def __call__(self, count: int) -> tuple[float, ...]:
        kept = min(count, max(1, round(self.share * count)))
        return (0.0,) * (count - kept) + (1.0,) * kept


def weigh(params: ParamTree, weighting: Weighting) -> ParamTree:
    weights = weighting(len(params))
    if all(weight == 1.0 for weight in weights):
        return params
    return {name: weight * tensor for weight, (name, tensor) in zip(weights, params.items(), strict=True)}
