"""Texts as something that can be moved: at each place a weight of every token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from leakgauge.attacks.matching.parametrisations.pixels import Coordinates, Parametrisation
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import TokenSpace, require
from leakgauge.types import Shape


@dataclass(frozen=True)
class SoftTokens(Parametrisation):
    """The softmax of free numbers, from Gaussian noise of size ``spread``: the model is given means of embeddings.

    With a large one a few tokens stand out at each place from the start, as in a text; from means of nearly all of them
    a search has a longer way.
    """

    spread: float = 3.0

    def bind(self, observation: UpdateObservation, num_examples: int) -> Coordinates:
        del num_examples
        require(observation.space, TokenSpace, self)
        assert isinstance(observation.space, TokenSpace)
        return TokenWeights(observation.space, self.spread)


@dataclass(frozen=True)
class TokenWeights(Coordinates):
    """Of the texts of one space."""

    space: TokenSpace
    spread: float

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        del shape
        return self.spread * torch.randn(restarts, num_examples, *self.space.relaxed, generator=generator)

    def decode(self, variables: Tensor) -> Tensor:
        return variables.softmax(dim=-1)
