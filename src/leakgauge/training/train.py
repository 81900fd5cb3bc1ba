"""Plain SGD training of a victim model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, nn
from torch.nn.functional import cross_entropy

from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.randomness import global_stream
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
    *,
    generator: Generator,
    progress: Progress = silent,
) -> None:
    """Train ``model`` in place and leave it in eval mode."""
    if training.steps and len(data) == 0:
        raise InvalidCase("There is no training data in this dataset; use train_steps=0 or add the training files.")
    optimiser = torch.optim.SGD(model.parameters(), lr=training.learning_rate, momentum=training.momentum)
    model.train()
    order = torch.empty(0, dtype=torch.long)
    with global_stream(generator):
        for step in range(training.steps):
            if len(order) < min(training.batch_size, len(data)):
                order = torch.randperm(len(data), generator=generator)
            chosen, order = order[: training.batch_size], order[training.batch_size :]
            optimiser.zero_grad()
            cross_entropy(model(data.inputs[chosen]), data.labels[chosen]).backward()
            optimiser.step()
            progress(Tick(step + 1, (step + 1) / training.steps))
    model.eval()


def accuracy(model: nn.Module, data: Batch, *, block: int = 512) -> float:
    """Share of examples classified correctly; NaN without examples."""
    if len(data) == 0:
        return float("nan")
    model.eval()
    with torch.no_grad():
        hits = sum(
            int((model(data.inputs[start : start + block]).argmax(1) == data.labels[start : start + block]).sum())
            for start in range(0, len(data), block)
        )
    return hits / len(data)
