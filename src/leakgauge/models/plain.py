"""A plain stack of convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from leakgauge.models.base import ACTIVATIONS, assemble_convolutions, check_choice, check_positive, check_task
from leakgauge.models.normalisation import Normalisation
from leakgauge.types import Shape


@dataclass(frozen=True)
class Plain:
    """3x3 convolutions, every second with stride 2, and a linear layer; BatchNorm after convolutions only if asked for.

    By default a 6-layer ConvNet such as Huang et al. [2021, A.3] train on MNIST; they do not describe theirs further.
    """

    convolutions: int = 5
    width: int = 32
    activation: str = "relu"
    batch_norm: bool = False

    def __post_init__(self) -> None:
        check_positive(self, convolutions=self.convolutions, width=self.width)
        check_choice("activation", self.activation, ACTIVATIONS)

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        check_task(self, shape, num_classes)
        return assemble_convolutions(
            shape,
            num_classes,
            normalisation,
            strides=[1 + index % 2 for index in range(self.convolutions)],
            width=self.width,
            activation=self.activation,
            batch_norm=self.batch_norm,
        )
