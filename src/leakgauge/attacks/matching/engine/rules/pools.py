"""Pools, means and sums, padding and interpolation; the commonest with their transposes, the others by autograd's."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from leakgauge.attacks.matching.engine.layers import LinearMap, MaxPool
from leakgauge.attacks.matching.engine.reader import Reader

_aten = torch.ops.aten


def _largest(pool: Any, args: tuple[Any, ...], kwargs: dict[str, Any], x: Tensor) -> Any:
    """The pool of ``x`` first; bound by ``partial``, it can be copied and compared."""
    return pool(x, *args, **kwargs)


def max_pool(reader: Reader, node: fx.Node) -> None:
    called = node.args[0] if node.target is operator.getitem else node
    assert isinstance(called, fx.Node)
    name = str(called.target).split(".")[1].removesuffix("_with_indices")
    spatial = int(name[-2])
    args = (*called.args[1:],)
    pool = partial(_largest, getattr(functional, name), args, {**called.kwargs, "return_indices": True})
    source = called.args[0]
    reader.write(node, MaxPool(pool, spatial), reader.slot(source))


def pad(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    if options.get("mode", "constant") == "constant" and options.get("value"):
        Reader.by_autograd(reader, node)  # not linear, but for its border
    elif options.get("mode", "constant") == "constant" and len(reader.moving(node)) == 1:
        sides = tuple(options["pad"])
        there, back = (partial(_pad, tuple(sign * side for side in sides)) for sign in (1, -1))
        reader.write(node, LinearMap(there, back), reader.slot(options["self"]))
    else:
        reader.linear(node)


def _pad(sides: tuple[int, ...], x: Tensor) -> Tensor:
    return _aten.constant_pad_nd(x, sides)


def mean(reader: Reader, node: fx.Node) -> None:
    _reduce(reader, node, torch.mean)


def total(reader: Reader, node: fx.Node) -> None:
    _reduce(reader, node, torch.sum)


def _reduce(reader: Reader, node: fx.Node, function: Any) -> None:
    options = reader.arguments(node)
    shape = reader.shape(node.args[0])  # type: ignore[arg-type]
    if options.get("dtype") is not None or not isinstance(options.get("dim") or [], list | tuple):
        reader.linear(node)
        return
    axes = tuple(axis % len(shape) for axis in options.get("dim") or range(len(shape)))
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    factor = 1.0 if function is torch.sum else math.prod(kept) / math.prod(shape)
    there = partial(_reduced, function, axes, bool(options.get("keepdim")))
    reader.write(node, LinearMap(there, partial(_spread, factor, kept, tuple(shape))), reader.slot(node.args[0]))


def _reduced(function: Any, axes: tuple[int, ...], keep: bool, x: Tensor) -> Tensor:
    return function(x, axes, keepdim=keep)


def _spread(factor: float, kept: tuple[int, ...], shape: tuple[int, ...], gy: Tensor) -> Tensor:
    return (gy if factor == 1 else gy * factor).reshape(kept).expand(shape)


def average_pool(reader: Reader, node: fx.Node) -> None:
    """With kernels for its transpose in two dimensions alone."""
    options = reader.arguments(node)
    geometry = tuple(value for name, value in options.items() if name not in ("self", "input"))
    shape = tuple(reader.shape(node.args[0]))  # type: ignore[arg-type]
    there, back = partial(_average, geometry), partial(_average_back, geometry, shape)
    reader.write(node, LinearMap(there, back), reader.slot(node.args[0]))


def _average(geometry: tuple[Any, ...], x: Tensor) -> Tensor:
    return _aten.avg_pool2d(x, *geometry)


def _average_back(geometry: tuple[Any, ...], shape: tuple[int, ...], gy: Tensor) -> Tensor:
    kernel, stride, *rest = geometry
    return _aten.avg_pool2d_backward(gy.contiguous(), _shaped(gy, shape), kernel, stride or kernel, *rest)


def adaptive_pool(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    shape = tuple(reader.shape(node.args[0]))  # type: ignore[arg-type]
    there = partial(functional.adaptive_avg_pool2d, output_size=tuple(options["output_size"]))
    if math.prod(reader.shape(node)[-2:]) == 1:
        back = partial(_spread, 1 / math.prod(shape[-2:]), (*shape[:-2], 1, 1), shape)
    else:
        back = partial(_adaptive_back, shape)
    reader.write(node, LinearMap(there, back), reader.slot(node.args[0]))


def _adaptive_back(shape: tuple[int, ...], gy: Tensor) -> Tensor:
    return _aten._adaptive_avg_pool2d_backward(gy.contiguous(), _shaped(gy, shape))


def _shaped(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor of which the shape alone is read."""
    return like.new_empty(1).expand(shape)


_LINEAR = (
    "avg_pool1d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool3d", "cumsum",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_bilinear2d_aa",
    "_upsample_nearest_exact2d", "_upsample_bicubic2d_aa", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "_pad_circular",
)  # fmt: skip

RULES = {
    **{f"max_pool{axes}d": max_pool for axes in (1, 2, 3)},
    **{f"max_pool{axes}d_with_indices[0]": max_pool for axes in (1, 2, 3)},
    **{f"adaptive_max_pool{axes}d[0]": max_pool for axes in (1, 2, 3)},
    "mean": mean,
    "sum": total,
    "avg_pool2d": average_pool,
    "adaptive_avg_pool2d": adaptive_pool,
    "pad": pad,
    "constant_pad_nd": pad,
    **dict.fromkeys(_LINEAR, Reader.linear),
}
