"""The eight-layer ConvNet that is the baseline of Inverting Gradients."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from leakgauge.models.base import (
    ACTIVATIONS,
    PADDINGS,
    Normalisation,
    Padding,
    assemble,
    check_choice,
    check_positive,
    check_task,
    make_activation,
)
from leakgauge.types import Shape

_MULTIPLES = (1, 2, 2, 4, 4, 4, 4, 4)
_POOLED = (6, 8)


@dataclass(frozen=True)
class ConvNet:
    """Eight 3x3 convolutions, each with BatchNorm and ReLU, and two 3x3 max-pools [Geiping et al., 2020, Fig. 8].

    ``width`` is the paper's D; images need at least 9 x 9 pixels. With ``padding="circular"`` everything up to the
    first pool commutes with shifts of the image, so the update no longer tells where an object was [ibid., Sec. 5].
    """

    width: int = 64
    padding: Padding = "zeros"
    activation: str = "relu"

    def __post_init__(self) -> None:
        check_positive(self, width=self.width)
        check_choice("padding", self.padding, PADDINGS)
        check_choice("activation", self.activation, ACTIVATIONS)

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        check_task(self, shape, num_classes, minimum=9)
        incoming, height, width = shape
        layers: dict[str, nn.Module] = {}
        for index, multiple in enumerate(_MULTIPLES, start=1):
            outgoing = multiple * self.width
            layers[f"conv{index}"] = nn.Conv2d(incoming, outgoing, 3, padding=1, padding_mode=self.padding)
            layers[f"norm{index}"] = nn.BatchNorm2d(outgoing)
            layers[f"act{index}"] = make_activation(self.activation)
            if index in _POOLED:
                layers[f"pool{index}"] = nn.MaxPool2d(3)
            incoming = outgoing
        layers["flatten"] = nn.Flatten()
        features = incoming * (height // 9) * (width // 9)
        return assemble(shape, num_classes, normalisation, layers, features=features)
