"""Random crops of images: what a training, or a client that encrypts, makes of an image in every epoch anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from leakgauge.errors import InvalidCase


@dataclass(frozen=True)
class Cropping:
    """A crop of the image's own size at a random place of the image extended by reflection, half of them mirrored."""

    margin: int = 4
    mirror: bool = True

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise InvalidCase(f"Cropping(margin=...) must be at least 0, got {self.margin}; it is in pixels.")

    def __call__(self, images: Tensor, *, generator: Generator) -> Tensor:
        """One crop of each image."""
        places = self.places
        chosen = torch.randint(len(places), (len(images),), generator=generator).tolist()
        wide = self._extend(images)
        size = (images.shape[2], images.shape[3])
        return torch.stack([_cut(wide[row], places[place], size) for row, place in enumerate(chosen)])

    def every(self, images: Tensor) -> Iterator[Tensor]:
        """All images at the first place, then all at the second, and so on."""
        wide = self._extend(images)
        for place in self.places:
            yield _cut(wide, place, (images.shape[2], images.shape[3]))

    @property
    def places(self) -> list[tuple[int, int, bool]]:
        """Every row, column and mirroring that a crop may have."""
        steps = range(2 * self.margin + 1)
        return [(row, column, flip) for flip in (False, True)[: 1 + self.mirror] for row in steps for column in steps]

    def _extend(self, images: Tensor) -> Tensor:
        if self.margin >= min(images.shape[2:]):
            raise InvalidCase(f"A margin of {self.margin} exceeds images of {tuple(images.shape[2:])}; lower it.")
        return pad(images, (self.margin,) * 4, mode="reflect") if self.margin else images


def _cut(wide: Tensor, place: tuple[int, int, bool], size: tuple[int, int]) -> Tensor:
    row, column, mirrored = place
    cut = wide[..., row : row + size[0], column : column + size[1]]
    return cut.flip(-1) if mirrored else cut
