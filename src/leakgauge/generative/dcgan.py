"""A small generative adversarial network for images of any size, and its file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import read_tensors, write_tensors
from leakgauge.randomness import global_stream, seeded
from leakgauge.types import Shape

_SMALLEST = 4


def doublings(image_shape: Shape) -> int:
    """How often a grid of about 4 on its shorter side doubles to reach the image."""
    return max(0, math.ceil(math.log2(min(image_shape[1:]) / _SMALLEST)))


def first_grid(image_shape: Shape) -> tuple[int, int]:
    """Height and width before the first doubling; two at least, so that BatchNorm has values to average.

    >>> first_grid((3, 32, 32)), first_grid((1, 28, 56))
    ((4, 4), (4, 7))
    """
    factor = 2 ** doublings(image_shape)
    height, width = (max(2, math.ceil(side / factor)) for side in image_shape[1:])
    return height, width


_SLOPE = 0.2


@dataclass(frozen=True)
class DCGAN:
    """Transposed convolutions with BatchNorm and ReLU from a latent N(0, 1), against strided convolutions with
    LeakyReLU(0.2) [Radford et al., 2016]; ``width`` channels at the largest sizes, twice as many at each smaller one.

    The generator is an ``nn.Sequential`` of stages, one per size, and ends in a sigmoid: pixels in [0, 1].
    """

    image_shape: Shape
    width: int = 32
    latent: int = 64

    def __post_init__(self) -> None:
        if self.width < 1 or self.latent < 1 or len(self.image_shape) != 3 or min(self.image_shape) < 1:
            raise InvalidCase(
                f"DCGAN needs a width, a latent and an image shape of positive numbers, got {self.width}, "
                f"{self.latent} and {self.image_shape}; correct them."
            )

    def generator(self, *, seed: int) -> nn.Sequential:
        """With untrained weights that are a function of the seed."""
        with global_stream(seeded(seed, "generator")):
            return _start_weights(self.layers())

    def layers(self) -> nn.Sequential:
        """The generator as torch makes it."""
        channels, height, width = self.image_shape
        count = doublings(self.image_shape)
        outgoing = self._channels(count)
        first = nn.ConvTranspose2d(self.latent, outgoing, first_grid(self.image_shape), bias=False)
        stages = [nn.Sequential(nn.Unflatten(1, (self.latent, 1, 1)), first, nn.BatchNorm2d(outgoing), nn.ReLU())]
        for left in reversed(range(count)):
            incoming, outgoing = outgoing, self._channels(left)
            raised = nn.ConvTranspose2d(incoming, outgoing, 4, stride=2, padding=1, bias=False)
            stages.append(nn.Sequential(raised, nn.BatchNorm2d(outgoing), nn.ReLU()))
        last = nn.Conv2d(outgoing, channels, 3, padding=1)
        stages.append(nn.Sequential(last, Cut(height, width), nn.Sigmoid()))
        return nn.Sequential(*stages)

    def discriminator(self, *, seed: int) -> nn.Sequential:
        with global_stream(seeded(seed, "discriminator")):
            layers: list[nn.Module] = []
            incoming = self.image_shape[0]
            for size in range(max(1, doublings(self.image_shape))):
                outgoing = self._channels(size)
                layers += [nn.Conv2d(incoming, outgoing, 3, stride=2, padding=1), nn.LeakyReLU(_SLOPE)]
                incoming = outgoing
            layers += [nn.Flatten(), nn.LazyLinear(1)]
            module = nn.Sequential(*layers)
            module(torch.zeros(2, *self.image_shape))
            return _start_weights(module)

    def _channels(self, halvings: int) -> int:
        return self.width * 2 ** max(0, halvings - 1)


class Cut(nn.Module):
    """The middle of an image."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.height, self.width = height, width

    def forward(self, images: Tensor) -> Tensor:
        return cut_middle(images, self.height, self.width)


def cut_middle(images: Tensor, height: int, width: int) -> Tensor:
    top, left = (images.shape[2] - height) // 2, (images.shape[3] - width) // 2
    return images[:, :, top : top + height, left : left + width]


def _start_weights(module: nn.Sequential) -> nn.Sequential:
    """Weights N(0, 0.02), gains N(1, 0.02), as published."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, 0.02)
    return module


_NETWORK = "dcgan"


def write_generator(path: Path, network: DCGAN, module: nn.Module, described: Mapping[str, str]) -> None:
    """``described`` says how it was trained."""
    write_tensors(path, module.state_dict(), {**described, _NETWORK: json.dumps(asdict(network))})


def read_generator(path: Path) -> tuple[nn.Sequential, DCGAN]:
    """The generator in eval mode; only numbers are read from the file, never code."""
    tensors, described = read_tensors(path)
    try:
        words = json.loads(described[_NETWORK])
        network = DCGAN(tuple(words["image_shape"]), int(words["width"]), int(words["latent"]))
        # Built without storage, so that a file which says other sizes than it holds takes no memory.
        with torch.device("meta"):
            module = network.layers()
        module.load_state_dict(tensors, assign=True)
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError, RecursionError, InvalidCase) as error:
        raise InvalidFile(
            f"{path} holds no generator that `leakgauge train-generator` wrote; name the factory of your own network."
        ) from error
    return module.float().eval(), network
