"""What moves, repeats, joins and picks entries without changing them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import fx

from leakgauge.attacks.matching.engine.layers import Joined, LinearMap, Permuted, Reshaped
from leakgauge.attacks.matching.engine.layers.operations import Operation
from leakgauge.attacks.matching.engine.reader import Reader


def shaped(shape: tuple[int, ...]) -> Reshaped:
    return Reshaped(partial(torch.reshape, shape=shape))


def reshape(reader: Reader, node: fx.Node) -> None:
    reader.write(node, shaped(tuple(reader.shape(node))), reader.slot(node.args[0]))


def same(reader: Reader, node: fx.Node) -> None:
    """A copy, or nothing done: the tensor itself."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    if node.meta["val"].dtype != source.meta["val"].dtype:
        reader.linear(node)
    else:
        reader.known[node] = reader.slot(source)


def permute(order: Callable[[dict[str, Any], int], list[int]]) -> Callable[[Reader, fx.Node], None]:
    def rule(reader: Reader, node: fx.Node) -> None:
        axes = len(reader.shape(node))
        places = [axis % axes for axis in order(reader.arguments(node), axes)]
        reader.write(node, Permuted(tuple(places)), reader.slot(node.args[0]))

    return rule


def _swapped(axes: int, one: int, two: int) -> list[int]:
    order = list(range(axes))
    order[one], order[two] = order[two], order[one]
    return order


def cat(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    tensors = [one for one in options["tensors"] if reader.shape(one).numel()]
    reader.write(node, Joined(options["dim"]), *map(reader.slot, tensors))


def stack(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    axis = options["dim"] % len(reader.shape(node))
    shape = list(reader.shape(node))
    shape[axis] = 1
    parts = [reader.append(shaped(tuple(shape)), reader.slot(one)) for one in options["tensors"]]
    reader.write(node, Joined(axis), *parts)


def expand_as(reader: Reader, node: fx.Node) -> None:
    layer = LinearMap(partial(torch.broadcast_to, size=tuple(reader.shape(node))))
    reader.write(node, layer, reader.slot(node.args[0]))


def filled(value: float | None) -> Callable[[Reader, fx.Node], None]:
    """A constant that has of a tensor its kind alone; without a ``value``, the one that is given."""

    def rule(reader: Reader, node: fx.Node) -> None:
        made, options = node.meta["val"], reader.arguments(node)
        number = options["fill_value"] if value is None else value
        operation = Operation(torch.full, (tuple(made.shape), number), {"dtype": made.dtype, "device": made.device})
        reader.known[node] = reader.constant(operation)

    return rule


_LINEAR = (
    "expand", "repeat", "repeat_interleave", "tile", "slice", "select", "narrow", "index_select", "index",
    "gather", "flip", "fliplr", "flipud", "roll", "rot90", "unfold", "im2col", "col2im", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "tril", "triu", "diagonal", "diag_embed", "movedim", "moveaxis",
    "masked_select", "take_along_dim",
)  # fmt: skip
_SPLITS = ("chunk", "split", "split_with_sizes", "unsafe_split", "unsafe_chunk", "unbind", "tensor_split")

RULES = {
    **dict.fromkeys(
        ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "_unsafe_view", "view_as", "reshape_as"),
        reshape,
    ),
    **dict.fromkeys(("contiguous", "clone", "alias", "to", "_to_copy", "type_as", "float", "double"), same),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), same),
    "permute": permute(lambda options, axes: options["dims"]),
    "transpose": permute(lambda options, axes: _swapped(axes, options["dim0"], options["dim1"])),
    "swapaxes": permute(lambda options, axes: _swapped(axes, options["axis0"], options["axis1"])),
    "t": permute(lambda options, axes: list(reversed(range(axes)))),
    "numpy_T": permute(lambda options, axes: list(reversed(range(axes)))),
    "mT": permute(lambda options, axes: _swapped(axes, -1, -2)),
    "cat": cat,
    "concat": cat,
    "concatenate": cat,
    "stack": stack,
    "embedding": Reader.linear,
    "expand_as": expand_as,
    **dict.fromkeys(("zeros_like", "new_zeros"), filled(0.0)),
    **dict.fromkeys(("ones_like", "new_ones"), filled(1.0)),
    **dict.fromkeys(("full_like", "new_full"), filled(None)),
    **dict.fromkeys(_LINEAR, Reader.linear),
    **{f"{name}[{number}]": Reader.linear for name in _SPLITS for number in range(64)},
}
