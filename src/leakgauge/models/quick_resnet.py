"""A residual network that learns within minutes on one processor core."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import Tensor, nn

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


class Sizes(nn.Module):
    """The size of each input without its sign."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.abs()


class CarriedAround(nn.Module):
    """What ``inner`` makes of the input, added to the input itself."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.inner(inputs)


@dataclass(frozen=True)
class QuickResNet:
    """A shallow residual network after Page [2018, "How to train your ResNet"], with strides where that one pools.

    A 5x5 convolution, two 3x3 ones that each double the width and are followed by two more around which the input is
    carried, each with BatchNorm; the maximum over places; a linear layer. Strides come first, so that most of the work
    is done on an eighth of the places: on CIFAR-10 a pass costs as much as that of a ResNet-8 a third as wide.
    ``signless`` takes sizes of pixels around the centre of their range: for images whose signs a mask has flipped by
    fair coins, which therefore say nothing [Huang et al., 2020].
    """

    width: int = 32
    activation: str = "relu"
    signless: bool = False

    def __post_init__(self) -> None:
        check_positive(self, width=self.width)
        check_choice("activation", self.activation, ACTIVATIONS)

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        check_task(self, shape, num_classes)
        layers: dict[str, nn.Module] = {"stem": self._conv(shape[0], self.width, kernel=5, stride=2)}
        if self.signless:
            # It has its zero at the centre of the range, where the signs are taken.
            normalisation = Normalisation.natural(shape[0])
            layers = {"sizes": Sizes(), **layers}
        for stage, incoming in enumerate((self.width, 2 * self.width), start=1):
            layers[f"down{stage}"] = self._conv(incoming, 2 * incoming, stride=2)
            pair = [(f"conv{number}", self._conv(2 * incoming, 2 * incoming)) for number in (1, 2)]
            layers[f"around{stage}"] = CarriedAround(nn.Sequential(OrderedDict(pair)))
        layers |= {"pool": nn.AdaptiveMaxPool2d(1), "flatten": nn.Flatten()}
        return assemble(shape, num_classes, normalisation, layers, features=4 * self.width)

    def _conv(self, incoming: int, outgoing: int, *, kernel: int = 3, stride: int = 1) -> nn.Sequential:
        convolution = nn.Conv2d(incoming, outgoing, kernel, stride=stride, padding=kernel // 2, bias=False)
        layers = [("conv", convolution), ("norm", nn.BatchNorm2d(outgoing)), ("act", make_activation(self.activation))]
        return nn.Sequential(OrderedDict(layers))
