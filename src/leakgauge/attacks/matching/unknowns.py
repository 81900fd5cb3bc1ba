"""What the optimiser moves: the images' variables and, where they are unknown, the labels and the client's position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.attacks.matching.parametrisations import Box, Coordinates
from leakgauge.space import InputSpace


@dataclass(frozen=True)
class FreeLabels:
    """Class probabilities, found along with the images: softmax of logits that start at N(0, 1) [Zhu et al., 2019]."""


class Candidates(NamedTuple):
    """One row per candidate; ``logits`` and ``position`` only where they are unknown."""

    images: Tensor
    logits: Tensor | None
    position: Tensor | None


@dataclass(frozen=True)
class Unknowns:
    """How the parts lie side by side in one vector; images alone keep their own shape."""

    coordinates: Coordinates
    num_examples: int
    space: InputSpace
    classes: int | None
    position: bool

    def start(self, rows: int, *, generator: Generator) -> Tensor:
        images = self.coordinates.start(rows, self.num_examples, self.space.shape, generator=generator)
        if self.classes is None and not self.position:
            return images
        parts = [images.flatten(1)]
        if self.classes is not None:
            parts.append(torch.randn(rows, self.num_examples * self.classes, generator=generator))
        if self.position:
            parts.append(torch.full((rows, 1), 0.5))
        return torch.cat(parts, dim=1)

    @property
    def box(self) -> Box | None:
        box = self.coordinates.box
        if self.classes is None and not self.position:
            return box
        low, high = (float("-inf"), float("inf")) if box is None else box
        pixels = self._sizes()[0]
        labels = 0 if self.classes is None else self.num_examples * self.classes
        bounds = []
        for bound, unbounded, last in ((low, float("-inf"), 0.0), (high, float("inf"), 1.0)):
            parts = [torch.as_tensor(bound).expand(pixels), torch.full((labels,), unbounded)]
            bounds.append(torch.cat([*parts, torch.full((int(self.position),), last)]))
        return bounds[0], bounds[1]

    def split(self, variables: Tensor) -> Candidates:
        """The parts of each row, as views."""
        if self.classes is None and not self.position:
            return Candidates(variables, None, None)
        pixels, labels = self._sizes()
        rows = len(variables)
        shape = self.shape()
        logits = variables[:, pixels : pixels + labels].view(rows, self.num_examples, -1) if labels else None
        position = variables[:, pixels + labels :].view(rows) if self.position else None
        return Candidates(variables[:, :pixels].view(rows, *shape), logits, position)

    def shape(self) -> torch.Size:
        generator = torch.Generator().manual_seed(0)
        return self.coordinates.start(1, self.num_examples, self.space.shape, generator=generator).shape[1:]

    def _sizes(self) -> tuple[int, int]:
        labels = 0 if self.classes is None else self.num_examples * self.classes
        return self.shape().numel(), labels
