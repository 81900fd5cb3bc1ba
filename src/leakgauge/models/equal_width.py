"""What stacks of convolutions of equal width have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import ClassVar

from torch import nn

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
    """Convolutions of equal width and odd kernel, each with its activation, hidden linear layers, and the head."""

    kernel: ClassVar[int] = 3
    width: int
    activation: str
    batch_norm: bool = False
    hidden: tuple[int, ...] = ()

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
        for index, size in enumerate(self.hidden, start=1):
            layers[f"linear{index}"] = nn.Linear(features, size)
            layers[f"linear{index}_act"] = make_activation(self.activation)
            features = size
        return assemble(shape, num_classes, normalisation, layers, features=features)


def side_after(size: int, *strides: int) -> int:
    """Side of an image after convolutions with these strides, each with an odd kernel padded by half of it.

    >>> side_after(33, 2, 2)
    9
    """
    for stride in strides:
        size = (size - 1) // stride + 1
    return size
