"""What running statistics that were sent along disclose: how often a client trained, and on what."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.protocol.learner import Learner
from leakgauge.types import BatchStatistics, ModelState, ParamTree

COUNTER = "num_batches_tracked"
_MEAN, _VARIANCE = "running_mean", "running_var"


def is_statistic(name: str) -> bool:
    """Whether an entry of a state dict is what BatchNorm keeps of the batches it saw."""
    return name.rpartition(".")[2] in (_MEAN, _VARIANCE, COUNTER)


def statistics_moved(moved: ParamTree) -> bool:
    """Whether a BatchNorm layer took notice of a batch, which it does in train mode only."""
    return any(is_statistic(name) and bool(tensor.any()) for name, tensor in moved.items())


def batches_seen(moved: ParamTree) -> int | None:
    """How many batches the client trained on, by the counters of its BatchNorm layers; None where they do not say."""
    counts = {
        -int(tensor) for name, tensor in moved.items() if name.rpartition(".")[2] == COUNTER and tensor.numel() == 1
    }
    counts.discard(0)  # a layer that was kept in eval mode
    return counts.pop() if len(counts) == 1 else None


def batch_statistics(
    learner: Learner, state: ModelState, moved: ParamTree, *, num_examples: int, probe: Tensor
) -> BatchStatistics | None:
    """Mean and biased variance of what one batch brought to each BatchNorm layer, exactly.

    One step of train mode leaves after = (1 - m) before + m batch in every running statistic, so that the batch's own
    is before - (before - after) / m; m is the layer's momentum, or one over the batches seen if it has none. The
    running variance is the unbiased one.
    """
    means: dict[str, Tensor] = {}
    variances: dict[str, Tensor] = {}
    with torch.no_grad():
        positions = {
            name: value[0, 0].numel() for name, value in learner.layer_inputs(state, probe, _BatchNorm).items()
        }
    layers = dict(learner.module.named_modules())
    for name in learner.batch_norm_layers():
        keys = [f"{name}.{part}".lstrip(".") for part in (_MEAN, _VARIANCE)]
        if name not in positions or not all(key in moved and key in state.buffers for key in keys):
            continue
        if not any(bool(moved[key].any()) for key in keys):
            continue
        layer = layers[name]
        assert isinstance(layer, _BatchNorm)
        momentum = layer.momentum
        if momentum is None:
            momentum = 1 / (1 + int(state.buffers.get(f"{name}.{COUNTER}".lstrip("."), torch.tensor(0))))
        count = num_examples * positions[name]
        mean, unbiased = (state.buffers[key] - moved[key].to(state.buffers[key]) / momentum for key in keys)
        means[name], variances[name] = mean, (unbiased * ((count - 1) / count)).clamp_min(0)
    return BatchStatistics(means, variances) if means else None
