"""What a model takes: the space that private inputs live in, and how an attack moves in it.

``Batch.inputs`` are members of a space, ``n`` of them along the first axis. An attack that differentiates moves in the
relaxation of the space and decodes what it found; nothing outside the spaces asks what an entry of an input means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Generator, Tensor

from leakgauge.types import ModelState, Shape

# Entries in [0, 1] differ by at most 1; a diverged row is capped so that it cannot drown the digits of the others.
_LARGEST_DISTANCE = 1e4

Cells = tuple[tuple[str, str], ...]
"""An input in words: the name of each part, and its value."""


class InputSpace(ABC):
    """The inputs of a model; subclasses are frozen dataclasses."""

    kind: ClassVar[str]
    """What one member is called."""

    one: ClassVar[str]
    kinds: ClassVar[str]
    """The same with its article, and of several members."""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The shape of one input as the model takes it."""

    @property
    @abstractmethod
    def size(self) -> str:
        """The shape in words."""

    @abstractmethod
    def describe(self) -> str:
        """What whoever knows the space knows of an input, in the words of the ledger."""

    @abstractmethod
    def check(self, inputs: Tensor) -> None:
        """Refuse, in a sentence, what is not a batch of members."""

    @abstractmethod
    def probe(self, count: int, like: Tensor | ModelState) -> Tensor:
        """An unremarkable member, ``count`` times."""

    @property
    def relaxed(self) -> Shape:
        """The shape of one input as a point that can be moved."""
        return self.shape

    def draw(self, count: int, *, generator: Generator) -> Tensor:
        """Members at random."""
        return self.decode(torch.rand(count, *self.relaxed, generator=generator))

    def noise(self, count: int, like: Tensor | ModelState, *, generator: Generator) -> Tensor:
        """What the model takes at points at random, members or not: to find out what it does with its inputs."""
        return self.lift(torch.rand(count, *self.relaxed, generator=generator).to(like.device, like.dtype))

    def place(self, inputs: Tensor, like: Tensor | ModelState) -> Tensor:
        """The inputs on the device of a model, in the numbers that it computes with."""
        return inputs.to(like.device, like.dtype)

    @abstractmethod
    def relax(self, inputs: Tensor) -> Tensor:
        """The inputs as points that can be moved and differentiated: members lie in the unit box."""

    @abstractmethod
    def lift(self, relaxed: Tensor) -> Tensor:
        """The inverse of ``relax``: what the model takes at these points, member or not, differentiable."""

    @abstractmethod
    def decode(self, relaxed: Tensor) -> Tensor:
        """The members nearest to these points, whatever axes come before those of ``relaxed``."""

    @property
    @abstractmethod
    def parts(self) -> int:
        """How many pixels, columns or tokens an input has."""

    @abstractmethod
    def vectors(self, inputs: Tensor) -> Tensor:
        """The inputs as vectors, in which two members differ by a squared length of at most 1 for each part."""

    def distance(self, left: Tensor, right: Tensor) -> Tensor:
        """The mean squared error of each of ``left`` (rows) and each of ``right`` (columns), over their parts."""
        # Not by matrix products: |a|^2 + |b|^2 - 2ab cancels exactly where a reconstruction is good.
        lengths = torch.cdist(
            self.vectors(left).double(), self.vectors(right).double(), compute_mode="donot_use_mm_for_euclid_dist"
        )
        return (lengths.square() / self.parts).clamp(max=_LARGEST_DISTANCE)

    @abstractmethod
    def render(self, member: Tensor) -> Tensor | Cells | str:
        """What a reader is shown of one member: pixels ``c h w``, its parts in words, or a text."""
