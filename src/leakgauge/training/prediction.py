"""What a trained model answers, and the one place where a defence may have a say in it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from leakgauge.defences import Defence, parts
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import UpdateTransform
from leakgauge.protocol.losses import LossFunction, named_classes
from leakgauge.types import Batch, ModelState

ENCODINGS = 10
"""Encodings of each image that a model is asked about if it has seen nothing else [Huang et al., 2021]."""

_BLOCK = 512


def answer(defence: Defence, learner: Learner, state: ModelState, images: Tensor, *, generator: Generator) -> Tensor:
    """The scores of a model that was trained under a defence; of a chain, the first link decides that flips signs.

    A model trained on images with flipped signs has never seen a plain one: it is asked about ``ENCODINGS`` encodings
    of each, mixed with others of those asked about, and its class probabilities are averaged.
    """

    def logits(asked: Tensor) -> Tensor:
        return learner.scores(state, asked)

    for part in parts(defence):
        if isinstance(part, UpdateTransform) and part.flips_signs:
            batch = Batch(images, torch.zeros(len(images), dtype=torch.long, device=images.device))
            encodings = (part.encode(learner, state, batch, generator=generator).batch.inputs for _ in range(ENCODINGS))
            return torch.stack([logits(encoded).softmax(dim=1) for encoded in encodings]).mean(dim=0)
    return logits(images)


def hits(learner: Learner, state: ModelState, data: Batch, defence: Defence, *, generator: Generator) -> Tensor:
    """1 for each example that the model classifies correctly, else 0; in eval mode, as a model is used."""
    tested = learner.in_mode("eval")
    return count_hits(
        data, lambda block: answer(defence, tested, state, block.inputs, generator=generator), learner.loss
    )


def count_hits(data: Batch, ask: Callable[[Batch], Tensor], loss: LossFunction = cross_entropy) -> Tensor:
    """1 for each example whose own class has the highest of the scores that are given for it, else 0.

    Asked in equal parts: a last one of few would leave too few to mix.
    """
    if len(data) == 0:
        return torch.empty(0, dtype=torch.float64)
    blocks = torch.arange(len(data)).tensor_split(math.ceil(len(data) / _BLOCK))
    with torch.no_grad():
        named = [named_classes(loss, ask(data[rows])) for rows in blocks]
    return (torch.cat(named) == data.labels).double()
