"""The running statistics of BatchNorm, which a client's update leaves untouched, moved as torch moves them."""

from __future__ import annotations

from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from leakgauge.protocol.learner import Learner
from leakgauge.types import BatchStatistics, ModelState, ParamTree


def values_per_example(learner: Learner, state: ModelState, probe: Tensor) -> dict[str, int]:
    """How many values of one channel each BatchNorm layer sees of one example: the height times width of its input."""
    inputs = learner.layer_inputs(state, probe, _BatchNorm)
    return {name: value.numel() // (value.shape[0] * value.shape[1]) for name, value in inputs.items()}


def move_statistics(
    learner: Learner, buffers: ParamTree, statistics: BatchStatistics | None, *, examples: int, values: dict[str, int]
) -> dict[str, Tensor]:
    """The buffers after one batch: r <- (1 - m) r + m s, with the unbiased variance; m = 1 / t if a layer has none.

    The batch's statistics come with its update, so they are of what the network saw, after a defence that acts on the
    images. A layer without running statistics has nothing to move.
    """
    moved = dict(buffers)
    if statistics is None:
        return moved
    layers = dict(learner.module.named_modules())
    for name, mean in statistics.mean.items():
        if f"{name}.running_mean" not in buffers:
            continue
        count = examples * values[name]
        tracked = buffers[f"{name}.num_batches_tracked"] + 1
        momentum = layers[name].momentum
        share = 1.0 / float(tracked) if momentum is None else float(momentum)
        unbiased = statistics.variance[name] * (count / max(count - 1, 1))
        moved[f"{name}.running_mean"] = buffers[f"{name}.running_mean"].lerp(mean, share)
        moved[f"{name}.running_var"] = buffers[f"{name}.running_var"].lerp(unbiased, share)
        moved[f"{name}.num_batches_tracked"] = tracked
    return moved
