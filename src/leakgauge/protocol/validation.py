"""Checks made once, before any work: does the batch fit the model?"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase, LeakGaugeError
from leakgauge.factories import cause
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.losses import check_labels
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch, ModelState


def check_model(learner: Learner, state: ModelState, space: InputSpace, labels: Tensor | None) -> int:
    """How many scores an example has, after making sure that inputs fit the model and labels fit its loss."""
    try:
        width = learner.width(state, space.probe(2, state))
    except LeakGaugeError:
        raise
    except Exception as error:  # a user's own model may fail in any way
        raise InvalidCase(
            f"The model cannot take {space.kinds} of {space.size}: {cause(error)}; check the input "
            "space and the model factory."
        ) from error
    if labels is not None:
        check_labels(learner.loss, labels, width)
    return width


def check_batch(learner: Learner, state: ModelState, batch: Batch, space: InputSpace | None = None) -> int:
    """How many scores an example has, after making sure that this batch can be trained on; without a space, images."""
    if len(batch) == 0:
        raise InvalidCase("The private batch is empty; pass at least one example.")
    space = space or ImageSpace.of(batch.inputs)
    space.check(batch.inputs)
    return check_model(learner, state, space, batch.labels)


def check_loss(learner: Learner, state: ModelState, batch: Batch) -> None:
    """Refuse a model or loss that cannot be computed on a batch; a user's own code may fail in any way."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            loss = learner.objective(state.params, state.buffers, batch)
            usable = loss.numel() == 1 and bool(torch.isfinite(loss).all())
    except Exception as error:
        raise InvalidCase(
            f"The loss of the private batch cannot be computed ({cause(error)}); "
            "check the output of the model, the types of images and labels, and the mode."
        ) from error
    if not usable:
        raise InvalidCase("The loss of the private batch is not one finite number; check the model's weights and loss.")
