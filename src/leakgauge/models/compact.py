"""A small convolutional network for demonstrations and quick audits."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from leakgauge.models.base import ACTIVATIONS, assemble_convolutions, check_choice, check_positive, check_task
from leakgauge.models.normalisation import Normalisation
from leakgauge.types import Shape

_STRIDES = (1, 2, 2)


@dataclass(frozen=True)
class Compact:
    """Three 3x3 convolutions with strides 1, 2, 2 and a linear layer; smooth, and without BatchNorm.

    Its update is a smooth function of each image, and no batch statistics enter it.
    """

    width: int = 32
    activation: str = "gelu"

    def __post_init__(self) -> None:
        check_positive(self, width=self.width)
        check_choice("activation", self.activation, ACTIVATIONS)

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        check_task(self, shape, num_classes)
        return assemble_convolutions(
            shape, num_classes, normalisation, strides=_STRIDES, width=self.width, activation=self.activation
        )
