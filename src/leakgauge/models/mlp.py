"""Fully connected networks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch import nn

from leakgauge.errors import InvalidCase
from leakgauge.models.base import (
    ACTIVATIONS,
    Normalisation,
    assemble,
    check_choice,
    check_classes,
    check_positive,
    make_activation,
)
from leakgauge.types import Shape


@dataclass(frozen=True)
class MLP:
    """Linear layers with an activation between them, for images and for rows of a table.

    ``bias=False`` drops the bias of every layer, the head's too.
    """

    hidden: tuple[int, ...] = (256, 128)
    activation: str = "relu"
    bias: bool = True

    def __post_init__(self) -> None:
        # Configuration files know only lists; a frozen value must hold a tuple.
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for size in self.hidden:
            check_positive(self, hidden=size)
        check_choice("activation", self.activation, ACTIVATIONS)

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        check_classes(self, num_classes)
        if len(shape) not in (1, 3) or min(shape) < 1:
            raise InvalidCase(f"MLP takes images or rows, got inputs of {shape}; pass the shape of one image or row.")
        features = prod(shape)
        layers: dict[str, nn.Module] = {"flatten": nn.Flatten()}
        for index, size in enumerate(self.hidden, start=1):
            layers[f"linear{index}"] = nn.Linear(features, size, bias=self.bias)
            layers[f"act{index}"] = make_activation(self.activation)
            features = size
        return assemble(shape, num_classes, normalisation, layers, features=features, bias=self.bias)


def fcn3() -> MLP:
    """FCN-3: three linear layers with 300 hidden units each [Ma et al., 2023, App. B, Table 2]."""
    return MLP(hidden=(300, 300))
