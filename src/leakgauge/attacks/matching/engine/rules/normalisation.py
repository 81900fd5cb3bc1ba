"""BatchNorm, GroupNorm, LayerNorm, InstanceNorm and RMSNorm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, fx

from leakgauge.attacks.matching.engine.layers import ChannelAffine, GroupedNorm, LinearMap
from leakgauge.attacks.matching.engine.layers.products import Combined, Product
from leakgauge.attacks.matching.engine.layers.statistics import (
    OverBatch,
    OverGroups,
    OverLastAxes,
    RootMeanSquare,
    Statistics,
)
from leakgauge.attacks.matching.engine.reader import Reader
from leakgauge.attacks.matching.engine.rules.affine import eval_norm


def batch_norm(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    norm = eval_norm(reader, node)
    if norm is not None:
        reader.write(node, ChannelAffine(norm, reader.trained), reader.slot(options["input"]))
    elif options["training"]:
        _own_statistics(reader, node, OverBatch(), options["eps"], _on_channels)
    else:
        Reader.by_autograd(reader, node)


def group_norm(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    _own_statistics(reader, node, OverGroups(options["num_groups"]), options["eps"], _on_channels)


def instance_norm(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    if not options["use_input_stats"]:
        Reader.by_autograd(reader, node)
        return
    channels = reader.shape(options["input"])[1]
    _own_statistics(reader, node, OverGroups(channels), options["eps"], _on_channels)


def layer_norm(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    _own_statistics(reader, node, OverLastAxes(len(options["normalized_shape"])), options["eps"], _as_is)


def rms_norm(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    eps = torch.finfo(node.meta["val"].dtype).eps if options["eps"] is None else options["eps"]
    _own_statistics(reader, node, RootMeanSquare(len(options["normalized_shape"])), eps, _as_is)


def _own_statistics(
    reader: Reader,
    node: fx.Node,
    statistics: Statistics,
    eps: float,
    shaped: Callable[[int, Tensor], Tensor],
) -> None:
    options = reader.arguments(node)
    parameters = options["weight"], options.get("bias")
    gamma, beta = map(reader.name, parameters)
    slot = reader.slot(options["input"])
    if all(name is not None or given is None for name, given in zip((gamma, beta), parameters)):
        reader.write(node, GroupedNorm(gamma, beta, float(eps), statistics, reader.trained), slot)
        return
    # Scale or offset were computed from other tensors: they are factors like any other.
    axes = len(reader.shape(node)) - 2
    slot = reader.append(GroupedNorm(None, None, float(eps), statistics, reader.trained), slot)
    for given, layer in zip(parameters, (Product(), Combined(1.0, 1.0))):
        if given is not None:
            slot = reader.append(layer, slot, reader.append(LinearMap(partial(shaped, axes)), reader.slot(given)))
    reader.known[node] = slot


def _on_channels(axes: int, vector: Tensor) -> Tensor:
    return vector.reshape(-1, *[1] * axes)


def _as_is(axes: int, vector: Tensor) -> Tensor:
    return vector


RULES = {
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
}
