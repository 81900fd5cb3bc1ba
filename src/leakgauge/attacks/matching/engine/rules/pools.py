"""Pools, means and sums, padding and interpolation."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

from torch import Tensor, fx
from torch.nn import functional

from leakgauge.attacks.matching.engine.layers import MaxPool
from leakgauge.attacks.matching.engine.reader import Reader


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
    else:
        reader.linear(node)


_LINEAR = (
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "mean", "sum", "cumsum", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_bilinear2d_aa",
    "_upsample_nearest_exact2d", "_upsample_bicubic2d_aa", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "_pad_circular",
)  # fmt: skip

RULES = {
    **{f"max_pool{axes}d": max_pool for axes in (1, 2, 3)},
    **{f"max_pool{axes}d_with_indices[0]": max_pool for axes in (1, 2, 3)},
    **{f"adaptive_max_pool{axes}d[0]": max_pool for axes in (1, 2, 3)},
    "pad": pad,
    "constant_pad_nd": pad,
    **dict.fromkeys(_LINEAR, Reader.linear),
}
