"""LeNet-5, the small network of the label-restoration literature."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from leakgauge.models.base import (
    ACTIVATIONS,
    Normalisation,
    assemble,
    check_choice,
    check_dropout,
    check_task,
    make_activation,
    start_convolutions,
)
from leakgauge.types import Shape

_LENET5_CHANNELS = (6, 16)
_LENET5_HIDDEN = (120, 84)
_FIELD = 32


@dataclass(frozen=True)
class LeNet5:
    """Two 5x5 convolutions with 2x2 max-pools, then three linear layers [LeCun et al., 1998; Ma et al., 2023].

    Convolutions do not pad, except that a side below 32 pixels gets a border of 2 (28 pixels become LeCun's 32); images
    need at least 12 x 12. ``batch_norm`` follows the convolutions, ``dropout`` precedes each linear layer, and
    ``bias=False`` drops the head's bias alone. Convolutions start as in ``VGG``.
    """

    activation: str = "relu"
    batch_norm: bool = False
    dropout: float = 0.0
    bias: bool = True

    def __post_init__(self) -> None:
        check_choice("activation", self.activation, ACTIVATIONS)
        check_dropout(self, self.dropout)

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        check_task(self, shape, num_classes, minimum=12)
        incoming, *sides = shape
        layers: dict[str, nn.Module] = {}
        for index, outgoing in enumerate(_LENET5_CHANNELS, start=1):
            padding = [2 if index == 1 and side < _FIELD else 0 for side in sides]
            layers[f"conv{index}"] = nn.Conv2d(incoming, outgoing, 5, padding=(padding[0], padding[1]))
            if self.batch_norm:
                layers[f"norm{index}"] = nn.BatchNorm2d(outgoing)
            layers[f"act{index}"] = make_activation(self.activation)
            layers[f"pool{index}"] = nn.MaxPool2d(2)
            sides = [(side + 2 * pad - 4) // 2 for side, pad in zip(sides, padding)]
            incoming = outgoing
        layers["flatten"] = nn.Flatten()
        features = incoming * sides[0] * sides[1]
        for index, size in enumerate(_LENET5_HIDDEN, start=1):
            if self.dropout > 0:
                layers[f"drop{index}"] = nn.Dropout(self.dropout)
            layers[f"linear{index}"] = nn.Linear(features, size)
            layers[f"act{len(_LENET5_CHANNELS) + index}"] = make_activation(self.activation)
            features = size
        if self.dropout > 0:
            layers["drop"] = nn.Dropout(self.dropout)
        module = assemble(shape, num_classes, normalisation, layers, features=features, bias=self.bias)
        start_convolutions(module)
        return module
