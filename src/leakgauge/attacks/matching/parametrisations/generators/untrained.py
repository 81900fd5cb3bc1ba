"""The weights of an untrained, over-parameterised network as search space: its architecture is the prior."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal, NamedTuple, get_args

import torch
from torch import Generator, Tensor
from torch.nn.functional import batch_norm, conv2d, conv_transpose2d, interpolate, leaky_relu
from torch.utils.checkpoint import checkpoint

from leakgauge import params as tree
from leakgauge.attacks.matching.parametrisations import Coordinates, Facts, Parametrisation
from leakgauge.errors import InvalidCase
from leakgauge.generative.dcgan import cut_middle, doublings, first_grid
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace, require
from leakgauge.types import Shape

Upsampling = Literal["nearest", "bilinear", "transposed"]
Normalisation = Literal["spectral", "pixel", "none"]
Output = Literal["tanh", "sigmoid"]
Initial = Literal["default", "normal"]

_SLOPE = 0.1
_POWER_ITERATIONS = 10
_NARROWEST = 32
# Stages beyond 32 pixels have half, then a quarter of the channels.
_SHARES = (1, 1, 1, 1, 2)
_LAST_SHARE = 4


class Weight(NamedTuple):
    """One tensor of the network; drawn uniformly within 1 / sqrt(fan in), or constant where there is no fan in."""

    shape: tuple[int, ...]
    fan_in: int | None = None
    value: float = 0.0


@dataclass(frozen=True)
class UntrainedGenerator:
    """x = G(z; th): a latent to 4 x 4 by a transposed convolution, then blocks of two 3 x 3 convolutions, each with
    BatchNorm over the batch and LeakyReLU(0.1), the image doubling before each block but the first, and a 1 x 1
    convolution to the channels [Zhang et al., 2023, CI-Net, appendix B].

    ``normalisation``: "spectral" divides each 3 x 3 kernel by its largest singular value; "pixel" instead scales the
    output of each convolution to length one per pixel, and "none" does neither; BatchNorm stays. It cancels the scale
    of the kernel before it, so that the spectral norm acts through the gradient alone. ``output`` "tanh" is the
    authors' code, whose pixels may leave [0, 1]; "sigmoid" keeps them inside. ``initial``: "default" is torch's, as in
    the code; "normal", N(0, 1) for every weight, is what Algorithm 1 says.

    Images of any size: the first grid is the smallest that doubles to at least the image, which is cut from its middle.
    """

    channels: int = _NARROWEST
    latent: int = 128
    upsampling: Upsampling = "nearest"
    normalisation: Normalisation = "spectral"
    output: Output = "tanh"
    initial: Initial = "default"

    def __post_init__(self) -> None:
        if self.channels < 1 or self.latent < 1:
            raise InvalidCase(
                f"UntrainedGenerator needs channels and latent of at least 1, got {self.channels} and {self.latent}; "
                "raise them."
            )
        for name, options in _CHOICES.items():
            if getattr(self, name) not in options:
                raise InvalidCase(
                    f"UntrainedGenerator has no {name} {getattr(self, name)!r}; choose from {', '.join(options)}."
                )

    def weights(self, shape: Shape) -> dict[str, Weight]:
        """Every tensor of the network, in the order of the flat vector."""
        grid = first_grid(shape)
        area = grid[0] * grid[1]
        found = {
            "first.weight": Weight((self.latent, self.channels, *grid), self.channels * area),
            "first.bias": Weight((self.channels,), self.channels * area),
            **_norm_weights("first", self.channels),
        }
        incoming = self.channels
        for stage in range(doublings(shape) + 1):
            outgoing = self._width(stage)
            if stage and self.upsampling == "transposed":
                found[f"{stage}.up.weight"] = Weight((incoming, incoming, 4, 4), incoming * 16)
                found[f"{stage}.up.bias"] = Weight((incoming,), incoming * 16)
            for part in ("one", "two"):
                name = f"{stage}.{part}"
                found[f"{name}.weight"] = Weight((outgoing, incoming, 3, 3), incoming * 9)
                found[f"{name}.bias"] = Weight((outgoing,), incoming * 9)
                found |= _norm_weights(name, outgoing)
                incoming = outgoing
        found["last.weight"] = Weight((shape[0], incoming, 1, 1), incoming)
        found["last.bias"] = Weight((shape[0],), incoming)
        return found

    def size(self, shape: Shape) -> int:
        """How many weights there are.

        >>> UntrainedGenerator(channels=32).size((3, 32, 32))
        140227
        """
        return sum(math.prod(weight.shape) for weight in self.weights(shape).values())

    def widen_beyond(self, bound: int, shape: Shape) -> UntrainedGenerator:
        """With 32 channels, doubled until there are more weights than ``bound``."""
        network = replace(self, channels=_NARROWEST)
        while network.size(shape) <= bound:
            network = replace(network, channels=2 * network.channels)
        return network

    def start(self, rows: int, shape: Shape, *, generator: Generator) -> Tensor:
        """Untrained weights, one flat vector per row."""
        parts = [self._draw(rows, weight, generator) for weight in self.weights(shape).values()]
        return torch.cat([part.flatten(1) for part in parts], dim=1)

    def at(self, shape: Shape, *, checkpointed: bool = False) -> Forward:
        return Forward(self, shape, checkpointed)

    def _draw(self, rows: int, weight: Weight, generator: Generator) -> Tensor:
        shape = (rows, *weight.shape)
        if self.initial == "normal":
            return torch.randn(shape, generator=generator)
        if weight.fan_in is None:
            return torch.full(shape, weight.value)
        return (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(weight.fan_in)

    def _width(self, stage: int) -> int:
        share = _SHARES[stage] if stage < len(_SHARES) else _LAST_SHARE
        return max(1, self.channels // share)


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "upsampling": get_args(Upsampling),
    "normalisation": get_args(Normalisation),
    "output": get_args(Output),
    "initial": get_args(Initial),
}


@dataclass(frozen=True)
class Forward:
    """The network for one size of image: (flat weights, latents n d) to images n c h w, and nothing else.

    ``checkpointed``: blocks keep their input alone and are computed again on the way back, so that the activations of
    one block are held at a time and none while the victim is differentiated.
    """

    network: UntrainedGenerator
    shape: Shape
    checkpointed: bool = False

    def __call__(self, flat: Tensor, latent: Tensor) -> Tensor:
        weights = self.split(flat)
        features = self._run(self._first, weights, "first", latent)
        for stage in range(doublings(self.shape) + 1):
            features = self._run(partial(self._block, stage), weights, f"{stage}.", features)
        # Cut before the last layer, which works pixel by pixel.
        pixels = conv2d(cut_middle(features, *self.shape[1:]), weights["last.weight"], weights["last.bias"])
        return pixels.tanh() if self.network.output == "tanh" else pixels.sigmoid()

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """The tensors of the network, as views of the vector."""
        sizes = [math.prod(shape) for shape in self._shapes.values()]
        return {
            name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), flat.split(sizes), strict=True)
        }

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: weight.shape for name, weight in self.network.weights(self.shape).items()}

    def _run(self, part: Callable[..., Tensor], weights: Mapping[str, Tensor], prefix: str, features: Tensor) -> Tensor:
        own = {name: tensor for name, tensor in weights.items() if name.startswith(prefix)}
        if not self.checkpointed:
            return part(own, features)
        computed = checkpoint(part, own, features, use_reentrant=False, preserve_rng_state=False)
        assert isinstance(computed, Tensor)
        return computed

    def _first(self, weights: Mapping[str, Tensor], latent: Tensor) -> Tensor:
        raised = conv_transpose2d(latent[:, :, None, None], weights["first.weight"], weights["first.bias"])
        return _activate(raised, weights, "first")

    def _block(self, stage: int, weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
        if stage:
            features = self._double(stage, weights, features)
        for part in ("one", "two"):
            name = f"{stage}.{part}"
            kernel = weights[f"{name}.weight"]
            if self.network.normalisation == "spectral":
                kernel = kernel / largest_singular_value(kernel.flatten(1))
            features = _activate(conv2d(features, kernel, weights[f"{name}.bias"], padding=1), weights, name)
            if self.network.normalisation == "pixel":
                features = features * (features.square().mean(dim=1, keepdim=True) + 1e-8).rsqrt()
        return features

    def _double(self, stage: int, weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
        if self.network.upsampling == "transposed":
            kernel, bias = weights[f"{stage}.up.weight"], weights[f"{stage}.up.bias"]
            return conv_transpose2d(features, kernel, bias, stride=2, padding=1)
        if self.network.upsampling == "bilinear":
            return interpolate(features, scale_factor=2, mode="bilinear", align_corners=False)
        return interpolate(features, scale_factor=2, mode="nearest")


def largest_singular_value(matrix: Tensor) -> Tensor:
    """u^T W v with u, v by power iteration from a fixed start: no state is kept [Miyato et al., 2018].

    Differentiable in W through u^T W v alone, as the derivative of a singular value is u v^T.
    """
    with torch.no_grad():
        left = torch.randn(len(matrix), generator=seeded(0, "power iteration")).to(matrix)
        right = matrix.T @ left
        for _ in range(_POWER_ITERATIONS):
            right = right / right.norm().clamp_min(1e-12)
            left = matrix @ right
            left = left / left.norm().clamp_min(1e-12)
            right = matrix.T @ left
        right = right / right.norm().clamp_min(1e-12)
    return (left @ (matrix @ right)).clamp_min(1e-12)


def _activate(features: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    features = batch_norm(features, None, None, weights[f"{name}.gain"], weights[f"{name}.shift"], training=True)
    return leaky_relu(features, _SLOPE)


def _norm_weights(name: str, channels: int) -> dict[str, Weight]:
    return {f"{name}.gain": Weight((channels,), value=1.0), f"{name}.shift": Weight((channels,))}


def _of_pixels(observation: UpdateObservation, num_examples: int) -> int:
    _, height, width = observation.space.shape
    return 4 * num_examples * height * width


def _of_victim(observation: UpdateObservation, num_examples: int) -> int:
    del num_examples
    return tree.count(observation.state.params)


WIDTH_RULES: Mapping[str, Callable[[UpdateObservation, int], int]] = {"code": _of_pixels, "paper": _of_victim}
"""How many weights the generator must exceed: 4 n h w as in the authors' code, or the victim's as in the paper."""


@dataclass(frozen=True)
class GeneratorWeights(Parametrisation):
    """x = G(z; th), z ~ N(0, 1) fixed by ``latent_seed``, one per image, th to be found [Zhang et al., 2023, CI-Net].

    ``width`` is the number of channels, or a rule that doubles it from 32 until G has more weights than the bound that
    ``WIDTH_RULES`` names. ``checkpointed`` trades a second forward pass for memory.
    """

    network: UntrainedGenerator = field(default_factory=UntrainedGenerator)
    width: str | int = "code"
    latent_seed: int = 0
    checkpointed: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.width, str) and self.width not in WIDTH_RULES:
            raise InvalidCase(
                f"There is no width rule {self.width!r}; choose from {', '.join(WIDTH_RULES)}, or give channels."
            )

    def bind(self, observation: UpdateObservation, num_examples: int) -> WeightsOfOne:
        require(observation.space, ImageSpace, self)
        shape = observation.space.shape
        if isinstance(self.width, str):
            network = self.network.widen_beyond(WIDTH_RULES[self.width](observation, num_examples), shape)
        else:
            network = replace(self.network, channels=self.width)
        latent = torch.randn(num_examples, network.latent, generator=seeded(self.latent_seed, "latent"))
        return WeightsOfOne(network.at(shape, checkpointed=self.checkpointed), latent)


@dataclass(frozen=True, eq=False)
class WeightsOfOne(Coordinates):
    """The weights of a generator for one batch; a row is one network, all rows have the same latents."""

    forward: Forward
    latent: Tensor

    @cached_property
    def facts(self) -> Facts:
        network = self.forward.network
        return {"channels": network.channels, "variables": network.size(self.forward.shape)}

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        del num_examples
        return self.forward.network.start(restarts, shape, generator=generator)

    def decode(self, variables: Tensor) -> Tensor:
        latent = self.latent.to(variables)
        return torch.stack([self.forward(row, latent) for row in variables])
