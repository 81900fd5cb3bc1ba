"""The weights of an untrained network as search space: its architecture is the prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.attacks.matching.parametrisations import Coordinates, Facts, Parametrisation
from leakgauge.attacks.matching.parametrisations.generators.untrained import Forward, UntrainedGenerator
from leakgauge.errors import InvalidCase
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace, require
from leakgauge.types import Shape


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
