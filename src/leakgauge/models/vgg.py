"""The very deep networks of the Visual Geometry Group, in a form that also serves small images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from leakgauge.errors import InvalidCase
from leakgauge.models.base import (
    ACTIVATIONS,
    Normalisation,
    assemble,
    check_choice,
    check_dropout,
    check_positive,
    check_task,
    make_activation,
    start_convolutions,
)
from leakgauge.types import Shape

_STAGE_MULTIPLES = (1, 2, 4, 8, 8)

# Convolutions in each stage: columns A, B, D and E of the paper's table 1.
_DEPTHS: Mapping[int, tuple[int, ...]] = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


@dataclass(frozen=True)
class VGG:
    """3x3 convolutions in five stages, each with a 2x2 max-pool, then linear layers [Simonyan & Zisserman, 2015].

    A pool that would leave no pixel is left out. ``hidden`` sizes the linear layers before the head: two of 512 suit
    small images, ``(4096, 4096)`` is the original and Ma et al. [2023], ``()`` the single linear layer of many CIFAR
    copies. ``dropout`` follows each hidden layer; ``bias=False`` drops the head's bias alone. Convolution weights start
    normal with variance 2 / (9 * channels out) [He et al., 2015, Eq. 14], the rest as torch does; torch's default for
    convolutions would shrink the signal by sqrt(6) at each and leave almost no gradient at depth 19. In training with
    ``batch_norm`` a lone image needs at least 32 pixels a side, else BatchNorm averages one value.
    """

    depth: int = 16
    width: int = 64
    batch_norm: bool = False
    dropout: float = 0.0
    hidden: tuple[int, ...] = (512, 512)
    activation: str = "relu"
    bias: bool = True

    def __post_init__(self) -> None:
        # Configuration files know only lists; a frozen value must hold a tuple.
        object.__setattr__(self, "hidden", tuple(self.hidden))
        check_choice("VGG of depth", self.depth, _DEPTHS)
        check_positive(self, width=self.width)
        for size in self.hidden:
            check_positive(self, hidden=size)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_dropout(self, self.dropout)
        if self.dropout > 0 and not self.hidden:
            raise InvalidCase("VGG drops out what its hidden layers give but has none; pass `hidden` or no `dropout`.")

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        check_task(self, shape, num_classes)
        incoming, height, width = shape
        layers: dict[str, nn.Module] = {}
        for stage, (multiple, length) in enumerate(zip(_STAGE_MULTIPLES, _DEPTHS[self.depth]), start=1):
            for index in range(1, length + 1):
                outgoing = multiple * self.width
                layers[f"conv{stage}_{index}"] = nn.Conv2d(incoming, outgoing, 3, padding=1)
                if self.batch_norm:
                    layers[f"norm{stage}_{index}"] = nn.BatchNorm2d(outgoing)
                layers[f"act{stage}_{index}"] = make_activation(self.activation)
                incoming = outgoing
            if min(height, width) > 1:
                layers[f"pool{stage}"] = nn.MaxPool2d(2)
                height, width = height // 2, width // 2
        layers["flatten"] = nn.Flatten()
        features = incoming * height * width
        for index, size in enumerate(self.hidden, start=1):
            layers[f"linear{index}"] = nn.Linear(features, size)
            layers[f"act{index}"] = make_activation(self.activation)
            if self.dropout > 0:
                layers[f"drop{index}"] = nn.Dropout(self.dropout)
            features = size
        module = assemble(shape, num_classes, normalisation, layers, features=features, bias=self.bias)
        start_convolutions(module)
        return module
