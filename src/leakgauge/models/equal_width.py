"""Stacks of convolutions of equal width: small ones for demonstrations, and the LeNet that was inverted first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from torch import nn

from leakgauge.errors import InvalidCase
from leakgauge.models.base import (
    ACTIVATIONS,
    Normalisation,
    assemble,
    check_choice,
    check_positive,
    check_task,
    make_activation,
)
from leakgauge.types import Shape


class EqualWidth(ABC):
    """Convolutions of equal width and odd kernel, each with its activation, and the linear head."""

    kernel: ClassVar[int] = 3
    width: int
    activation: str
    batch_norm: bool = False

    def __post_init__(self) -> None:
        check_positive(self, width=self.width)
        check_choice("activation", self.activation, ACTIVATIONS)

    @property
    @abstractmethod
    def strides(self) -> tuple[int, ...]:
        """Of the convolutions, in order."""

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        check_task(self, shape, num_classes)
        incoming, *sides = shape
        layers: dict[str, nn.Module] = {}
        for index, stride in enumerate(self.strides, start=1):
            layers[f"conv{index}"] = nn.Conv2d(incoming, self.width, self.kernel, stride, padding=self.kernel // 2)
            if self.batch_norm:
                layers[f"norm{index}"] = nn.BatchNorm2d(self.width)
            layers[f"act{index}"] = make_activation(self.activation)
            incoming = self.width
        layers["flatten"] = nn.Flatten()
        features = self.width * prod(side_after(side, *self.strides) for side in sides)
        return assemble(shape, num_classes, normalisation, layers, features=features)


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


@dataclass(frozen=True)
class Plain(EqualWidth):
    """3x3 convolutions, every second with stride 2, and a linear layer; BatchNorm after convolutions only if asked for.

    By default a 6-layer ConvNet such as Huang et al. [2021, A.3] train on MNIST; they do not describe theirs further.
    """

    convolutions: int = 5
    width: int = 32
    activation: str = "relu"
    batch_norm: bool = False

    def __post_init__(self) -> None:
        check_positive(self, convolutions=self.convolutions)
        super().__post_init__()

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(1 + index % 2 for index in range(self.convolutions))


@dataclass(frozen=True)
class LeNet(EqualWidth):
    """5x5 convolutions of 12 channels, the first two with stride 2, then a linear layer [Zhu et al., 2019].

    ``convolutions``: the authors' code, and LeNet (Zhu) of Geiping et al. [2020], have 3 (see ``lenet_zhu``); many
    copies of it have 4. ``initial_range``: weights and biases start uniform in plus or minus this, as in the authors'
    code; far wider than torch's default (``None``), it keeps sigmoids from washing the image out of the gradient.
    ``width`` other than 12 and ``batch_norm`` before each activation are ours; the range leaves BatchNorm alone.
    """

    kernel: ClassVar[int] = 5
    activation: str = "sigmoid"
    convolutions: int = 3
    initial_range: float | None = 0.5
    width: int = 12
    batch_norm: bool = False

    def __post_init__(self) -> None:
        check_positive(self, convolutions=self.convolutions)
        super().__post_init__()
        if self.initial_range is not None and not self.initial_range > 0:
            raise InvalidCase(
                f"LeNet needs a positive `initial_range`, got {self.initial_range}; pass None for torch's default."
            )

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(2 if index < 2 else 1 for index in range(self.convolutions))

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        module = super().__call__(shape, num_classes, normalisation=normalisation)
        if self.initial_range is not None:
            for layer in module.modules():
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    for parameter in layer.parameters():
                        nn.init.uniform_(parameter, -self.initial_range, self.initial_range)
        return module


def lenet_zhu() -> LeNet:
    """LeNet as released by Zhu et al. [2019], which is LeNet (Zhu) of Geiping et al. [2020, Table 1]."""
    return LeNet(convolutions=3)


def side_after(size: int, *strides: int) -> int:
    """Side of an image after convolutions with these strides, each with an odd kernel padded by half of it.

    >>> side_after(33, 2, 2)
    9
    """
    for stride in strides:
        size = (size - 1) // stride + 1
    return size
