"""The sigmoid LeNet on which gradient inversion was first shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.errors import InvalidCase
from leakgauge.models.base import Normalisation, check_positive
from leakgauge.models.equal_width import EqualWidth
from leakgauge.types import Shape


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
