"""A small convolutional network for demonstrations and quick audits."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.models.equal_width import EqualWidth


@dataclass(frozen=True)
class Compact(EqualWidth):
    """Three 3x3 convolutions with strides 1, 2, 2 and a linear layer; smooth, and without BatchNorm.

    Its update is a smooth function of each image, and no batch statistics enter it.
    """

    width: int = 32
    activation: str = "gelu"

    @property
    def strides(self) -> tuple[int, ...]:
        return (1, 2, 2)
