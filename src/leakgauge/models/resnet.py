"""Residual networks in the form used on CIFAR: a 3x3 stem without stride or pooling."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

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
    start_convolutions,
)
from leakgauge.types import Shape


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around which the input is carried [He et al., 2016, Fig. 5 left]."""

    expansion = 1

    def __init__(
        self, incoming: int, width: int, *, stride: int, padding: Padding, activation: str, batch_norm: bool
    ) -> None:
        super().__init__()
        self.conv1 = _conv3(incoming, width, stride=stride, padding=padding, bias=not batch_norm)
        self.norm1 = _norm(width, batch_norm)
        self.act1 = make_activation(activation)
        self.conv2 = _conv3(width, width, stride=1, padding=padding, bias=not batch_norm)
        self.norm2 = _norm(width, batch_norm)
        self.shortcut = _shortcut(incoming, width, stride=stride, batch_norm=batch_norm)
        self.act2 = make_activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        residual = self.act1(self.norm1(self.conv1(x)))
        residual = self.norm2(self.conv2(residual))
        return self.act2(residual + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around which the input is carried [He et al., 2016, Fig. 5 right].

    The stride sits in the 3x3 convolution, as in the common implementations, not in the first 1x1 as in the paper.
    """

    expansion = 4

    def __init__(
        self, incoming: int, width: int, *, stride: int, padding: Padding, activation: str, batch_norm: bool
    ) -> None:
        super().__init__()
        outgoing = self.expansion * width
        self.conv1 = nn.Conv2d(incoming, width, 1, bias=not batch_norm)
        self.norm1 = _norm(width, batch_norm)
        self.act1 = make_activation(activation)
        self.conv2 = _conv3(width, width, stride=stride, padding=padding, bias=not batch_norm)
        self.norm2 = _norm(width, batch_norm)
        self.act2 = make_activation(activation)
        self.conv3 = nn.Conv2d(width, outgoing, 1, bias=not batch_norm)
        self.norm3 = _norm(outgoing, batch_norm)
        self.shortcut = _shortcut(incoming, outgoing, stride=stride, batch_norm=batch_norm)
        self.act3 = make_activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        residual = self.act1(self.norm1(self.conv1(x)))
        residual = self.act2(self.norm2(self.conv2(residual)))
        residual = self.norm3(self.conv3(residual))
        return self.act3(residual + self.shortcut(x))


_DEPTHS: Mapping[int, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, ...]]] = {
    8: (BasicBlock, (1, 1, 1)),
    18: (BasicBlock, (2, 2, 2, 2)),
    20: (BasicBlock, (3, 3, 3)),
    32: (BasicBlock, (5, 5, 5)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    152: (Bottleneck, (3, 8, 36, 3)),
}


@dataclass(frozen=True)
class ResNet:
    """Residual network of ``depth`` 8 to 152 [He et al., 2016] in the form used on CIFAR [Geiping et al., 2020].

    Each stage after the first halves the image and doubles the width; shortcuts that change shape are 1x1 convolutions.
    In training a lone image needs more than 8 pixels a side (4 at depth 8, 20 or 32), else BatchNorm averages one
    value. Without ``batch_norm`` the convolutions have biases instead. ``initialisation``: "default" is torch's of each
    layer, "kaiming" that of the 2020 paper's and torchvision's residual networks.
    """

    depth: int = 18
    base_width: int = 64
    padding: Padding = "zeros"
    activation: str = "relu"
    batch_norm: bool = True
    initialisation: Literal["default", "kaiming"] = "default"

    def __post_init__(self) -> None:
        check_choice("ResNet of depth", self.depth, _DEPTHS)
        check_positive(self, base_width=self.base_width)
        check_choice("padding", self.padding, PADDINGS)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("initialisation", self.initialisation, ("default", "kaiming"))

    def __call__(self, shape: Shape, num_classes: int, *, normalisation: Normalisation | None = None) -> nn.Module:
        check_task(self, shape, num_classes)
        block, lengths = _DEPTHS[self.depth]
        layers: dict[str, nn.Module] = {
            "conv": _conv3(shape[0], self.base_width, stride=1, padding=self.padding, bias=not self.batch_norm),
            "norm": _norm(self.base_width, self.batch_norm),
            "act": make_activation(self.activation),
        }
        incoming = self.base_width
        for index, length in enumerate(lengths):
            width = self.base_width * 2**index
            layers[f"stage{index + 1}"] = self._stage(block, incoming, width, length, stride=1 if index == 0 else 2)
            incoming = width * block.expansion
        layers["pool"] = nn.AdaptiveAvgPool2d(1)
        layers["flatten"] = nn.Flatten()
        module = assemble(shape, num_classes, normalisation, layers, features=incoming)
        if self.initialisation == "kaiming":
            start_convolutions(module)
        return module

    def _stage(
        self, block: type[BasicBlock] | type[Bottleneck], incoming: int, width: int, length: int, *, stride: int
    ) -> nn.Sequential:
        blocks: OrderedDict[str, nn.Module] = OrderedDict()
        for index in range(length):
            blocks[f"block{index + 1}"] = block(
                incoming if index == 0 else width * block.expansion,
                width,
                stride=stride if index == 0 else 1,
                padding=self.padding,
                activation=self.activation,
                batch_norm=self.batch_norm,
            )
        return nn.Sequential(blocks)


def resnet20_4() -> ResNet:
    """ResNet20-4: the 20-layer network four times as wide, 64 channels for 16 [Geiping et al., 2020, Table 1]."""
    return ResNet(depth=20, base_width=64)


def _conv3(incoming: int, outgoing: int, *, stride: int, padding: Padding, bias: bool) -> nn.Conv2d:
    # No bias before BatchNorm, which would cancel it.
    return nn.Conv2d(incoming, outgoing, 3, stride=stride, padding=1, padding_mode=padding, bias=bias)


def _norm(width: int, batch_norm: bool) -> nn.Module:
    return nn.BatchNorm2d(width) if batch_norm else nn.Identity()


def _shortcut(incoming: int, outgoing: int, *, stride: int, batch_norm: bool) -> nn.Module:
    if incoming == outgoing and stride == 1:
        return nn.Identity()
    projection = nn.Conv2d(incoming, outgoing, 1, stride=stride, bias=not batch_norm)
    return nn.Sequential(OrderedDict([("conv", projection), ("norm", _norm(outgoing, batch_norm))]))
