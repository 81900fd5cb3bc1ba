"""Training on images that are disguised anew in every epoch, and asking a model that saw nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from leakgauge.encodings.crops import Cropping
from leakgauge.encodings.keys import SeededKeys
from leakgauge.encodings.schemes import Scheme, apply, check_images, class_weights
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import CENTRE
from leakgauge.protocol.learner import Learner, probe_of
from leakgauge.training.prediction import ENCODINGS, count_hits
from leakgauge.types import Batch, ModelState

Drawn = Callable[[Tensor, Generator], Batch]
"""One epoch's disguise of a set: from the rows of a mini-batch, and randomness for their masks, to what is seen."""


class Disguise(ABC):
    """What a training is shown in place of its images; frozen dataclasses whose fields are their configuration."""

    @abstractmethod
    def epoch(self, data: Batch, *, classes: int, generator: Generator) -> Drawn:
        """Everything that is drawn over the whole set, once an epoch."""


@dataclass(frozen=True)
class Undisguised(Disguise):
    """The images themselves."""

    def epoch(self, data: Batch, *, classes: int, generator: Generator) -> Drawn:
        del classes, generator
        return lambda rows, masks: data[rows]


@dataclass(frozen=True)
class Encrypted(Disguise):
    """Encodings by a scheme, the partners and coefficients of an epoch drawn over the whole set.

    The keys are seeded, so that a training can be repeated, which no deployment may do.
    """

    scheme: Scheme
    public: Tensor | None = field(default=None, repr=False, compare=False)

    def epoch(self, data: Batch, *, classes: int, generator: Generator) -> Drawn:
        public = self.public if self.scheme.public_per_encoding else None
        check_images(data.inputs, public)
        weighted = Batch(data.inputs, class_weights(data.labels, classes))
        drawn = self.scheme.draw(len(data), 0 if public is None else len(public), keys=SeededKeys(generator))

        def encoded(rows: Tensor, masks: Generator) -> Batch:
            part = drawn.rows(rows.cpu())
            found, _ = apply(self.scheme, part, weighted, classes=classes, public=public, keys=SeededKeys(masks))
            return Batch(found.images, found.labels)

        return encoded


@dataclass(frozen=True)
class NoisyImages(Disguise):
    """(1 - alpha) x + e, e Laplace noise with E|e|_1 = alpha E|x|_1 [Huang et al., 2020, section 5.2].

    On the scale of signs, x around the centre; the result is not clipped.
    """

    alpha: float

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InvalidCase(f"NoisyImages(alpha=...) must lie in [0, 1], got {self.alpha}; it is a share.")

    def epoch(self, data: Batch, *, classes: int, generator: Generator) -> Drawn:
        del classes, generator
        scale = self.alpha * float((data.inputs - CENTRE).abs().mean())

        def noisy(rows: Tensor, masks: Generator) -> Batch:
            shown = data[rows]
            # The difference of two exponential variables is Laplace noise, with E|e| = its scale.
            waits = torch.empty(2, *shown.inputs.shape, dtype=torch.float64).exponential_(generator=masks)
            noise = (scale * (waits[0] - waits[1])).to(shown.inputs)
            return Batch(CENTRE + (1 - self.alpha) * (shown.inputs - CENTRE) + noise, shown.labels)

        return noisy


@dataclass(frozen=True)
class Moved(Disguise):
    """Images cropped and mirrored at random, in every epoch anew, before another disguise takes them."""

    disguise: Disguise = field(default_factory=Undisguised)
    cropping: Cropping = field(default_factory=Cropping)

    def epoch(self, data: Batch, *, classes: int, generator: Generator) -> Drawn:
        moved = Batch(self.cropping(data.inputs, generator=generator), data.labels)
        return self.disguise.epoch(moved, classes=classes, generator=generator)


def hits_in_disguise(
    learner: Learner, state: ModelState, data: Batch, disguise: Disguise, *, generator: Generator
) -> Tensor:
    """1 for each example that is classified correctly from `ENCODINGS` disguises of it, probabilities averaged.

    What a scheme mixes in are other images of those asked about.
    """
    tested = learner.in_mode("eval")

    def ask(block: Batch) -> Tensor:
        everyone = torch.arange(len(block), device=block.labels.device)
        classes = tested.num_classes(state, probe_of(block.inputs))
        total = torch.zeros(len(block), classes).to(block.inputs)
        for _ in range(ENCODINGS):
            shown = disguise.epoch(block, classes=classes, generator=generator)(everyone, generator)
            total += tested.logits(state.params, state.buffers, shown.inputs).softmax(dim=1)
        return total

    return count_hits(data, ask)
