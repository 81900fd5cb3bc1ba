"""Which images, and under which labels, the updates of an experiment are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from leakgauge.data.datasets import rank_within_class
from leakgauge.errors import InvalidCase


class Chosen(NamedTuple):
    """The images of one update, by index, and the labels that the client gives them."""

    images: Tensor
    labels: Tensor


class Draw(Protocol):
    """Frozen dataclasses; ``labels`` are those of the images to draw from."""

    def __call__(
        self, labels: Tensor, *, updates: int, batch_size: int, minibatch: int, classes: int, generator: Generator
    ) -> list[Chosen]: ...

    def of_nulls(self, classes: int) -> Draw:
        """What the batches of nulls are drawn by, whose labels must be others."""
        ...


@dataclass(frozen=True)
class InOrder:
    """The next images, without those whose label is in their mini-batch already [Geiping et al., 2020, C.2].

    With fewer classes than a mini-batch has images, no label comes again before all have come. ``first`` is where to
    begin.
    """

    first: int = 0

    def __call__(
        self, labels: Tensor, *, updates: int, batch_size: int, minibatch: int, classes: int, generator: Generator
    ) -> list[Chosen]:
        del classes, generator
        present = len(labels.unique())
        queue = iter(list(enumerate(labels.tolist()))[self.first :])
        found = []
        for _ in range(updates):
            update: list[int] = []
            while len(update) < batch_size:
                of_batch = labels[update[len(update) // minibatch * minibatch :]].tolist()
                lap = of_batch[len(of_batch) // present * present :]
                following = next((index for index, label in queue if label not in lap), None)
                if following is None:
                    raise InvalidCase(
                        f"The {len(labels) - self.first} test images are too few for {updates} updates of "
                        f"{batch_size} with nulls; lower --images."
                    )
                update.append(following)
            found.append(Chosen(torch.tensor(update), labels[update]))
        return found

    def of_nulls(self, classes: int) -> Draw:
        del classes
        return self


@dataclass(frozen=True)
class AtRandom:
    """Images at random, as they are labelled; with ``relabelled`` under labels drawn uniformly from all classes."""

    relabelled: bool = False

    def __call__(
        self, labels: Tensor, *, updates: int, batch_size: int, minibatch: int, classes: int, generator: Generator
    ) -> list[Chosen]:
        del minibatch
        drawn = [_some(len(labels), batch_size, generator) for _ in range(updates)]
        if not self.relabelled:
            return [Chosen(images, labels[images]) for images in drawn]
        return [Chosen(images, torch.randint(classes, (batch_size,), generator=generator)) for images in drawn]

    def of_nulls(self, classes: int) -> Draw:
        del classes
        return self


@dataclass(frozen=True)
class Skewed:
    """``present`` classes at random with ``repeats`` images each [Ma et al., 2023, appendix F: NoC and MRoC].

    Where the data has too few classes or images of one for that, images at random get these labels.
    """

    present: int
    repeats: int

    def __call__(
        self, labels: Tensor, *, updates: int, batch_size: int, minibatch: int, classes: int, generator: Generator
    ) -> list[Chosen]:
        del minibatch
        if self.present * self.repeats != batch_size or self.present > classes:
            raise InvalidCase(
                f"{self} makes batches of {self.present * self.repeats} from {self.present} classes, not of "
                f"{batch_size} from at most {classes}; change one of them."
            )
        enough = bool((torch.bincount(labels, minlength=classes) >= self.repeats).all())
        return [self._one(labels, batch_size, classes, enough, generator) for _ in range(updates)]

    def of_nulls(self, classes: int) -> Draw:
        """Where every class is there equally often, so it is in any other such batch: then at random."""
        return AtRandom() if self.present == classes else self

    def _one(self, labels: Tensor, batch_size: int, classes: int, enough: bool, generator: Generator) -> Chosen:
        wanted = torch.randperm(classes, generator=generator)[: self.present].sort().values
        if not enough:
            return Chosen(_some(len(labels), batch_size, generator), wanted.repeat_interleave(self.repeats))
        order = torch.randperm(len(labels), generator=generator)
        mixed = labels[order]
        chosen = order[torch.isin(mixed, wanted) & (rank_within_class(mixed) < self.repeats)]
        return Chosen(chosen, labels[chosen])


def _some(count: int, wanted: int, generator: Generator) -> Tensor:
    """So many of the images, none twice before all have come."""
    laps = [torch.randperm(count, generator=generator) for _ in range(-(-wanted // count))]
    return torch.cat(laps)[:wanted]
