"""What moves, repeats, joins and picks entries without changing them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from leakgauge.attacks.matching.engine.layers import Joined, LinearMap, Permuted, Reshaped
from leakgauge.attacks.matching.engine.layers.operations import Operation
from leakgauge.attacks.matching.engine.layers.products import sum_to
from leakgauge.attacks.matching.engine.reader import Reader

_aten = torch.ops.aten


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


def expand(reader: Reader, node: fx.Node) -> None:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    reader.write(node, repeated(tuple(reader.shape(source)), tuple(reader.shape(node))), reader.slot(source))


def repeated(small: tuple[int, ...], large: tuple[int, ...]) -> LinearMap:
    """A tensor repeated along axes."""
    return LinearMap(partial(torch.broadcast_to, size=large), partial(sum_to, shape=small))


def cut(reader: Reader, node: fx.Node) -> None:
    """Every ``step``-th of the entries along an axis from ``start`` to ``end``."""
    options = reader.arguments(node)
    shape = tuple(reader.shape(node.args[0]))  # type: ignore[arg-type]
    axis, size = options["dim"] % len(shape), shape[options["dim"]]
    start, end, _ = slice(options["start"], options["end"]).indices(size)
    place = (axis, start, max(start, end), options["step"])
    reader.write(node, _piece(shape, place), reader.slot(node.args[0]))


def pick(reader: Reader, node: fx.Node) -> None:
    """One place along an axis."""
    options = reader.arguments(node)
    shape = tuple(reader.shape(node.args[0]))  # type: ignore[arg-type]
    axis = options["dim"] % len(shape)
    reader.write(node, _picked(shape, axis, options["index"] % shape[axis]), reader.slot(node.args[0]))


def part(reader: Reader, node: fx.Node) -> None:
    """One of several parts along an axis."""
    whole, number = node.args
    assert isinstance(whole, fx.Node)
    assert isinstance(number, int)
    options, source = reader.arguments(whole), whole.args[0]
    assert isinstance(source, fx.Node)
    shape = tuple(reader.shape(source))
    axis = options["dim"] % len(shape)
    if "unbind" in str(whole.target):
        layer = _picked(shape, axis, number % shape[axis])
    else:
        sizes = [one.shape[axis] for one in whole.meta["val"]]
        start = sum(sizes[: number % len(sizes)])
        layer = _piece(shape, (axis, start, start + sizes[number], 1))
    reader.write(node, layer, reader.slot(source))


def _piece(shape: tuple[int, ...], place: tuple[int, int, int, int]) -> LinearMap:
    return LinearMap(partial(_cut, place), partial(_uncut, shape, place))


def _cut(place: tuple[int, int, int, int], x: Tensor) -> Tensor:
    return _aten.slice(x, *place)


def _uncut(shape: tuple[int, ...], place: tuple[int, int, int, int], gy: Tensor) -> Tensor:
    return _aten.slice_backward(gy, shape, *place)


def _picked(shape: tuple[int, ...], axis: int, index: int) -> LinearMap:
    return LinearMap(partial(torch.select, dim=axis, index=index), partial(_unpicked, shape, axis, index))


def _unpicked(shape: tuple[int, ...], axis: int, index: int, gy: Tensor) -> Tensor:
    return _aten.select_backward(gy, shape, axis, index)


def filled(value: float | None) -> Callable[[Reader, fx.Node], None]:
    """A constant that has of a tensor its kind alone; without a ``value``, the one that is given."""

    def rule(reader: Reader, node: fx.Node) -> None:
        made, options = node.meta["val"], reader.arguments(node)
        number = options["fill_value"] if value is None else value
        operation = Operation(torch.full, (tuple(made.shape), number), {"dtype": made.dtype, "device": made.device})
        reader.known[node] = reader.constant(operation)

    return rule


_LINEAR = (
    "repeat", "repeat_interleave", "tile", "narrow", "index_select", "index",
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
    "expand": expand,
    "expand_as": expand,
    "slice": cut,
    "select": pick,
    **dict.fromkeys(("zeros_like", "new_zeros"), filled(0.0)),
    **dict.fromkeys(("ones_like", "new_ones"), filled(1.0)),
    **dict.fromkeys(("full_like", "new_full"), filled(None)),
    **dict.fromkeys(_LINEAR, Reader.linear),
    **{f"{name}[{number}]": part for name in _SPLITS for number in range(64)},
}
