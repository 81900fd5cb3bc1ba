"""Checks made once, before any work: does the batch fit the model?"""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase, LeakGaugeError
from leakgauge.protocol.learner import Learner
from leakgauge.types import Batch, ImageShape, ModelState


def check_model(learner: Learner, state: ModelState, image_shape: ImageShape, labels: Tensor | None) -> int:
    """The number of classes, after making sure that images fit the model and labels fit its classes."""
    try:
        classes = learner.num_classes(state, image_shape)
    except LeakGaugeError:
        raise
    except Exception as error:  # a user's own model may fail in any way
        raise InvalidCase(
            f"The model cannot take images of {' x '.join(map(str, image_shape))} (channels x height x width): "
            f"{next(iter(str(error).splitlines()), type(error).__name__)}; check the image shape and the model factory."
        ) from error
    if labels is not None:
        _check_labels(labels, classes)
    return classes


def _check_labels(labels: Tensor, classes: int) -> None:
    if labels.ndim == 2 and labels.is_floating_point() and labels.shape[1] == classes and bool(labels.isfinite().all()):
        return
    if labels.ndim != 1 or labels.dtype not in (torch.int64, torch.uint8):
        raise InvalidCase(
            f"Labels must be whole class numbers (int64, shape n) or class probabilities (shape n x {classes}), "
            f"got {labels.dtype} of shape {tuple(labels.shape)}; convert them."
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise InvalidCase(
            f"Labels run from {int(labels.min())} to {int(labels.max())}, but the model has {classes} classes "
            f"(0 to {classes - 1}); use a model with the right number of outputs."
        )


def check_batch(learner: Learner, state: ModelState, batch: Batch) -> int:
    """The number of classes, after making sure that this private batch can be trained on."""
    if len(batch) == 0:
        raise InvalidCase("The private batch is empty; pass at least one example.")
    if batch.inputs.ndim != 4:
        raise InvalidCase(f"Images must be n c h w, got shape {tuple(batch.inputs.shape)}; add the missing dimension.")
    low, high = float(batch.inputs.min()), float(batch.inputs.max())
    if not 0 <= low <= high <= 1:
        raise InvalidCase(
            f"Pixels must lie in [0, 1], got {low:.3g} to {high:.3g}; undo the normalisation and let the model do it."
        )
    _, channels, height, width = batch.inputs.shape
    return check_model(learner, state, (channels, height, width), batch.labels)
