"""The data that flows through LeakGauge: plain frozen values, no behaviour beyond their own consistency.

Conventions stated once, here:

* inputs are members of a space (see ``space``) in its own units, images being pixels in [0, 1] shaped ``n c h w``;
  models normalise inside;
* an update is a *pseudo-gradient*: the gradient itself (FedSGD) or ``parameters before - parameters after`` (FedAvg),
  so a sign rule that holds for gradients holds for both;
* missing is ``None`` or NaN, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase

ParamTree = Mapping[str, Tensor]
"""Named tensors, keyed as in ``module.named_parameters()``."""

Shape = tuple[int, ...]
"""The shape of one input; of an image, channels, height, width."""


@dataclass(frozen=True)
class Batch:
    """Private examples: ``inputs``, n of what the model takes; ``labels`` n (classes) or n k (class probabilities).

    ``others`` are further examples of the same client, for an encoding that mixes more inputs than the batch has.
    ``regions``, n 5, say of which picture each input is cut and where: the number of the picture, the first row and
    column, those after the last. Without them no two inputs share a pixel.
    """

    inputs: Tensor
    labels: Tensor
    others: Batch | None = None
    regions: Tensor | None = None

    def __post_init__(self) -> None:
        if self.inputs.ndim < 2 or self.labels.ndim < 1:
            raise InvalidCase(
                f"A batch needs n inputs and n labels, got shapes {tuple(self.inputs.shape)} and "
                f"{tuple(self.labels.shape)}; add the batch dimension."
            )
        if self.inputs.shape[0] != self.labels.shape[0]:
            raise InvalidCase(
                f"The batch has {self.inputs.shape[0]} inputs but {self.labels.shape[0]} labels; "
                "pass one label per input."
            )
        if self.regions is not None and tuple(self.regions.shape) != (len(self), 5):
            raise InvalidCase(
                f"The regions of {len(self)} inputs are {tuple(self.regions.shape)}; give each a picture and four ends."
            )

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def __getitem__(self, index: Tensor | slice) -> Batch:
        regions = None if self.regions is None else self.regions[index]
        return Batch(self.inputs[index], self.labels[index], self.others, regions)


@dataclass(frozen=True)
class ModelState:
    """What the server sent: trainable ``params``; everything else (statistics, frozen weights) in ``buffers``."""

    params: ParamTree
    buffers: ParamTree

    @property
    def device(self) -> torch.device:
        return next(iter(self.params.values())).device

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.params.values())).dtype


@dataclass(frozen=True)
class BatchStatistics:
    """Mean and biased variance of the input of each BatchNorm layer over one batch, keyed by the layer's name."""

    mean: ParamTree
    variance: ParamTree


@dataclass(frozen=True)
class Update:
    """What a client computed: the pseudo-gradient, and the batch statistics its BatchNorm layers saw, if any.

    The statistics leave the client only when the threat model says so (see ``protocol.round``).
    """

    params: ParamTree
    batch_statistics: BatchStatistics | None = None


class Outcome(Enum):
    """How an attack ended; the value is the sentence shown to the reader."""

    SOLVED = "Solved in closed form."
    CONVERGED = "The matching loss stopped improving."
    STEPS_EXHAUSTED = "The budget was used up; read the result as a lower bound on leakage, or raise it."
    OVERDUE = (
        "The machine was too busy, or the model too slow, for the steps and seconds of the budget, and waiting has an "
        "end; run it again on a free machine, or give more seconds."
    )
    NON_FINITE = "The matching loss became non-finite; lower the learning rate."
    NOT_APPLICABLE = "The attack does not apply to this model or update."
    MISSING_KNOWLEDGE = "The threat model hides something this attack needs."
    FAILED = "The attack ended with an error; the next run tries it again."


@dataclass(frozen=True)
class Decoding:
    """What an attack on t encodings found beside n images: how the ones hold the others.

    ``coefficients`` t x n are of the images returned, or t x m of the ``public`` images that it names in each encoding.
    ``encodings`` n c h w stand beside the images, ``demasked`` are the same with the signs that the attack believes in.
    """

    coefficients: Tensor
    encodings: Tensor
    demasked: Tensor
    public: Tensor | None = None


@dataclass(frozen=True)
class Certificate:
    """That what came back is what the client trained on, by the update alone, whether or not anybody has the truth.

    The client, run on what came back, sends the observed update: their relative difference is ``residual``, below
    ``tolerance``. And nothing else does: ``argument`` says in a sentence why the inputs that give this update are the
    only ones. A residual alone never certifies; see `attacks.certificates`. ``examples`` says of how many it is.
    """

    residual: float
    tolerance: float
    argument: str
    examples: int


@dataclass(frozen=True)
class Reconstruction:
    """What an attack returned. ``None`` means not attempted; ``facts`` says how it got there (route, steps).

    ``decoding`` is there for attacks on encodings, ``certificate`` where the attack can prove that it is right.
    ``confidence`` says of each entry of the inputs how sure the attack is of it, from 0 to 1.
    """

    inputs: Tensor | None
    labels: Tensor | None
    outcome: Outcome
    loss_trace: Tensor | None = None
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    decoding: Decoding | None = None
    certificate: Certificate | None = None
    confidence: Tensor | None = None
