"""What a model takes: the space that private inputs live in, and how an attack moves in it.

``Batch.inputs`` are members of a space, ``n`` of them along the first axis. An attack that differentiates moves in the
relaxation of the space and decodes what it found; nothing outside this module asks whether inputs are pixels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.types import ModelState, Shape

# Pixels in [0, 1] differ by at most 1; a diverged row is capped so that it cannot drown the digits of the others.
_LARGEST_DISTANCE = 1e4


class InputSpace(ABC):
    """The inputs of a model; subclasses are frozen dataclasses."""

    kind: ClassVar[str]
    """One member, in a word: what parametrisations, priors and metrics name to say whom they serve."""

    kinds: ClassVar[str]
    """Several members, in a word."""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The shape of one input as the model takes it."""

    @property
    @abstractmethod
    def box(self) -> tuple[Tensor, Tensor]:
        """The least and the greatest value of each entry of the relaxation, broadcast over ``shape``."""

    @abstractmethod
    def check(self, inputs: Tensor) -> None:
        """Refuse, in a sentence, what is not a batch of members."""

    @abstractmethod
    def probe(self, count: int, like: Tensor | ModelState) -> Tensor:
        """The same unremarkable member ``count`` times."""

    @abstractmethod
    def relax(self, inputs: Tensor) -> Tensor:
        """The members as points that can be moved and differentiated."""

    @abstractmethod
    def decode(self, relaxed: Tensor) -> Tensor:
        """The nearest members, whatever axes come before those of ``shape``."""

    @abstractmethod
    def distance(self, left: Tensor, right: Tensor) -> Tensor:
        """The mean squared error of each of ``left`` (rows) and each of ``right`` (columns), in double precision."""

    @abstractmethod
    def describe(self) -> str:
        """The space in the words of the ledger."""


@dataclass(frozen=True)
class ImageSpace(InputSpace):
    """Pixels in [0, 1], channels first."""

    channels: int
    height: int
    width: int

    kind: ClassVar[str] = "image"
    kinds: ClassVar[str] = "images"

    def __post_init__(self) -> None:
        if not all(type(size) is int and size > 0 for size in self.shape):
            raise InvalidCase(f"Images have positive channels, height and width, got {self.shape}; correct them.")

    @classmethod
    def of(cls, inputs: Tensor) -> ImageSpace:
        """The space of a batch of images ``n c h w``."""
        if inputs.ndim != 4:
            raise InvalidCase(f"Images must be n c h w, got shape {tuple(inputs.shape)}; add the missing dimension.")
        return cls(*inputs.shape[1:])

    @property
    def shape(self) -> Shape:
        return self.channels, self.height, self.width

    @property
    def box(self) -> tuple[Tensor, Tensor]:
        return torch.tensor(0.0), torch.tensor(1.0)

    def check(self, inputs: Tensor) -> None:
        if inputs.ndim != 4:
            raise InvalidCase(f"Images must be n c h w, got shape {tuple(inputs.shape)}; add the missing dimension.")
        if tuple(inputs.shape[1:]) != self.shape:
            raise InvalidCase(f"Images must be {self.describe()}, got shape {tuple(inputs.shape)}; bring them to it.")
        low, high = float(inputs.min()), float(inputs.max())
        if not 0 <= low <= high <= 1:
            raise InvalidCase(
                f"Pixels must lie in [0, 1], got {low:.3g} to {high:.3g}; "
                "undo the normalisation and let the model do it."
            )

    def probe(self, count: int, like: Tensor | ModelState) -> Tensor:
        return torch.full((count, *self.shape), 0.5, dtype=like.dtype, device=like.device)

    def relax(self, inputs: Tensor) -> Tensor:
        return inputs

    def decode(self, relaxed: Tensor) -> Tensor:
        return relaxed.clamp(0, 1)

    def distance(self, left: Tensor, right: Tensor) -> Tensor:
        return mean_squared_errors(left, right)

    def describe(self) -> str:
        return f"{' x '.join(map(str, self.shape))} (channels x height x width)"


def as_space(given: InputSpace | Shape) -> InputSpace:
    """The space itself; three numbers are the channels, height and width of images.

    >>> as_space((3, 32, 32))
    ImageSpace(channels=3, height=32, width=32)
    """
    if isinstance(given, InputSpace):
        return given
    if len(given) != 3:
        raise InvalidCase(f"An image shape is (channels, height, width), got {given}; pass these or an InputSpace.")
    return ImageSpace(*given)


def mean_squared_errors(left: Tensor, right: Tensor) -> Tensor:
    """Over all entries, of each of ``left`` (rows) and each of ``right`` (columns)."""
    # Not by matrix products: |a|^2 + |b|^2 - 2ab cancels exactly where a reconstruction is good.
    distances = torch.cdist(
        left.flatten(1).double(), right.flatten(1).double(), compute_mode="donot_use_mm_for_euclid_dist"
    )
    return (distances.square() / left.shape[1:].numel()).clamp(max=_LARGEST_DISTANCE)
