"""Checks made once, before any work: does the batch fit the model?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase, LeakGaugeError
from leakgauge.factories import cause
from leakgauge.protocol.failures import explain_failure, noting_layers
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.losses import check_labels
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch, ModelState


def check_model(learner: Learner, state: ModelState, space: InputSpace, labels: Tensor | None) -> int:
    """How many scores an example has, after making sure that inputs fit the model and labels fit its loss."""
    with noting_layers(learner.module) as running:
        try:
            width = learner.width(state, space.probe(2, state))
        except LeakGaugeError:
            raise
        except Exception as error:  # a user's own model may fail in any way
            raise InvalidCase(
                f"The model cannot take {space.kinds} of {space.size}: {explain_failure(error, running)}."
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
    with noting_layers(learner.module) as running:
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                loss: Any = learner.objective(state.params, state.buffers, batch)
        except LeakGaugeError:
            raise
        except Exception as error:
            if running:
                raise InvalidCase(
                    f"The model fails on the private batch: {explain_failure(error, running)}."
                ) from error
            raise InvalidCase(
                f"The loss of the private batch cannot be computed ({cause(error).rstrip('.')}); check what the model "
                "returns, and the type and shape of the labels."
            ) from error
    if not isinstance(loss, Tensor):
        raise InvalidCase(f"The loss returns a {type(loss).__name__}, not a tensor; let it return the loss alone.")
    if loss.numel() != 1:
        raise InvalidCase(
            f"The loss returns {loss.numel()} numbers of shape {tuple(loss.shape)} instead of one; let it return their "
            "mean or sum."
        )
    if not bool(torch.isfinite(loss)):
        raise InvalidCase(
            f"The loss of the private batch is {float(loss)}, not a finite number; check the model's weights and loss."
        )
