"""Plain SGD training of a victim model, and whole trainings by name: how long, in which batches, how fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Generator, nn
from torch.nn.functional import cross_entropy

from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.learner import probe_of
from leakgauge.protocol.losses import LossFunction, Targets, named_classes, targets_of
from leakgauge.randomness import global_stream
from leakgauge.schedules import ConstantRate, CosineDecay, RegularDecay, Schedule
from leakgauge.training.disguises import Disguise, Drawn, Undisguised
from leakgauge.types import Batch


@dataclass(frozen=True)
class Training:
    """SGD with momentum on random mini-batches drawn without replacement within an epoch."""

    steps: int = 100
    batch_size: int = 32
    learning_rate: float = 0.01
    momentum: float = 0.9


def train(
    model: nn.Module,
    data: Batch,
    training: Training,
    loss: LossFunction = cross_entropy,
    *,
    schedule: Schedule = ConstantRate(),
    disguise: Disguise = Undisguised(),
    weight_decay: float = 0.0,
    layout: torch.memory_format = torch.contiguous_format,
    generator: Generator,
    progress: Progress = silent,
) -> None:
    """Train ``model`` in place, on images in a disguise if there is one, and leave it in eval mode.

    ``layout`` is that of images and weights while training: with channels last a convolution of few channels takes a
    fifth to a third less time on a processor, but a model that reshapes by ``view`` may refuse it.
    """
    if training.steps and len(data) == 0:
        raise InvalidCase("There is no training data in this dataset; use train_steps=0 or add the training files.")
    rate = training.learning_rate
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=training.momentum, weight_decay=weight_decay)
    classes = 0 if isinstance(disguise, Undisguised) else _classes(model, data)
    model.train().to(memory_format=layout)  # type: ignore[call-overload]
    order = torch.empty(0, dtype=torch.long)
    drawn: Drawn | None = None
    with global_stream(generator):
        for step in range(training.steps):
            if drawn is None or len(order) < min(training.batch_size, len(data)):
                order = torch.randperm(len(data), generator=generator)
                drawn = disguise.epoch(data, classes=classes, generator=generator)
            chosen, order = order[: training.batch_size], order[training.batch_size :]
            optimiser.param_groups[0]["lr"] = rate * schedule(step / training.steps)
            optimiser.zero_grad()
            shown = drawn(chosen.to(data.labels.device), generator)
            loss(model(shown.inputs.contiguous(memory_format=layout)), shown.labels).backward()
            optimiser.step()
            progress(Tick(step + 1, (step + 1) / training.steps))
    model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def _classes(model: nn.Module, data: Batch) -> int:
    with torch.no_grad():
        return int(model.eval()(probe_of(data.inputs)).shape[1])


def accuracy(model: nn.Module, data: Batch, loss: LossFunction = cross_entropy, *, block: int = 512) -> float:
    """Share of examples classified correctly; NaN without examples, and where labels are no classes."""
    if len(data) == 0 or targets_of(loss) not in (Targets.CLASSES, Targets.BINARY):
        return float("nan")
    model.eval()
    with torch.no_grad():
        hits = sum(
            int((named_classes(loss, model(part.inputs)) == part.labels).sum())
            for part in (data[start : start + block] for start in range(0, len(data), block))
        )
    return hits / len(data)


@dataclass(frozen=True)
class Recipe:
    """Either ``steps`` or ``epochs`` of SGD with momentum; an epoch leaves out the images that fill no batch."""

    batch_size: int
    learning_rate: float
    schedule: Schedule
    steps: int | None = None
    epochs: int | None = None
    momentum: float = 0.9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise InvalidCase("A training lasts a number of steps or of epochs; give one of the two.")
        if (self.steps or self.epochs or 0) < 1 or self.batch_size < 1 or not 0 < self.learning_rate < float("inf"):
            raise InvalidCase(
                f"A training needs at least one step, one image per batch and a finite learning rate above 0, got "
                f"{self.steps or self.epochs}, {self.batch_size} and {self.learning_rate}; correct them."
            )

    def training(self, images: int) -> Training:
        """The settings for a dataset of so many images.

        >>> RECIPES["huang2021"].training(50_000).steps
        78000
        """
        if images == 0:
            raise InvalidCase(
                "There is no training data in this dataset, so no utility either; add the training files."
            )
        steps = self.steps or (self.epochs or 0) * steps_per_epoch(images, self.batch_size)
        return Training(steps, self.batch_size, self.learning_rate, self.momentum)


def steps_per_epoch(images: int, batch_size: int) -> int:
    """How many whole batches there are, or one of all images if they do not fill one."""
    return max(1, images // batch_size)


RECIPES: Mapping[str, Recipe] = {
    "short": Recipe(batch_size=32, learning_rate=0.02, schedule=CosineDecay(), steps=400),
    "huang2021": Recipe(batch_size=128, learning_rate=0.1, schedule=RegularDecay(), epochs=200),
}
"""``huang2021`` is the full scale of Huang et al. [2021, App. A.1]; ``short`` fits into seconds on a processor.

The paper starts at a learning rate of 0.02 where pruning leaves 1 % or less; give it as an option.
"""

SCHEDULES: Mapping[str, Callable[..., Schedule]] = {
    "constant": ConstantRate,
    "step": RegularDecay,
    "cosine": CosineDecay,
}
