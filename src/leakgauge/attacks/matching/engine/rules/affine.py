"""Convolutions and linear layers; BatchNorm in eval mode that alone reads one is folded into it."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import fx
from torch.nn import functional

from leakgauge.attacks.matching.engine.layers import Convolution, EvalNorm, Layer, Linear, LinearMap
from leakgauge.attacks.matching.engine.layers.products import BilinearOperation, Combined
from leakgauge.attacks.matching.engine.reader import Reader


def convolution(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    weight, bias = options["weight"], options["bias"]
    if reader.name(weight) is None or (bias is not None and reader.name(bias) is None):
        _computed(reader, node, "bias")
        return
    spatial = len(reader.shape(weight)) - 2
    stride, dilation = _each(options["stride"], spatial), _each(options["dilation"], spatial)
    padding = options["padding"]
    slot = reader.slot(options["input"])
    if isinstance(padding, str):
        # Pad first, then convolve without: the two sides may differ.
        lengths = [dilation[axis] * (reader.shape(weight)[2 + axis] - 1) for axis in range(spatial)]
        if padding == "same":
            pads = [side for length in reversed(lengths) for side in (length // 2, length - length // 2)]
            slot = reader.append(LinearMap(partial(functional.pad, pad=tuple(pads), mode="constant")), slot)
        padding = 0
    geometry = (stride, _each(padding, spatial), dilation, options["groups"])
    _affine(reader, node, slot, partial(_make_convolution, geometry))


def _make_convolution(geometry: Any, *names: Any) -> Convolution:
    return Convolution(*names, *geometry)


def transposed_convolution(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    weight, bias = reader.name(options["weight"]), reader.name(options["bias"])
    if weight is None or (options["bias"] is not None and bias is None):
        _computed(reader, node, "bias")
        return
    spatial = len(reader.shape(options["weight"])) - 2
    stride, padding, dilation, extra = (
        _each(options[key], spatial) for key in ("stride", "padding", "dilation", "output_padding")
    )
    layer = Convolution(
        weight, bias, None, reader.trained, True, stride, padding, dilation, options["groups"], extra
    )  # fmt: skip
    reader.write(node, layer, reader.slot(options["input"]))


def linear(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    weight, bias = options["weight"], options["bias"]
    if reader.name(weight) is None or (bias is not None and reader.name(bias) is None):
        _computed(reader, node, "bias")
    else:
        _affine(reader, node, reader.slot(options["input"]), Linear)


def _each(value: Any, spatial: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * spatial if len(values) == 1 else values


def _affine(reader: Reader, node: fx.Node, slot: int, make: Any) -> None:
    options = reader.arguments(node)
    norm_node = _foldable(reader, node)
    norm = None if norm_node is None else eval_norm(reader, norm_node)
    # Where the kernel is larger than the map, scaling the map is cheaper than a second copy of the kernel.
    small = reader.shape(options["weight"]).numel() <= reader.shape(node).numel()
    weight, bias = reader.name(options["weight"]), reader.name(options["bias"])
    layer: Layer = make(weight, bias, norm, reader.trained, small)
    reader.write(node, layer, slot)
    if norm_node is not None:
        reader.known[norm_node] = reader.known[node]


def _foldable(reader: Reader, node: fx.Node) -> fx.Node | None:
    """The BatchNorm in eval mode that alone reads this node."""
    if not reader.fold or len(node.users) != 1:
        return None
    (user,) = node.users
    if "batch_norm" not in str(user.target) or user.args[0] is not node or eval_norm(reader, user) is None:
        return None
    is_linear = len(reader.shape(reader.arguments(node)["weight"])) == 2
    return user if not is_linear or len(reader.shape(node)) == 2 else None


def eval_norm(reader: Reader, node: fx.Node) -> EvalNorm | None:
    """The names of a BatchNorm's tensors, if it uses running statistics."""
    options = reader.arguments(node)
    mean, variance = reader.name(options.get("running_mean")), reader.name(options.get("running_var"))
    if options.get("training") is not False or mean is None or variance is None:
        return None
    for key in ("weight", "bias"):
        if options[key] is not None and reader.name(options[key]) is None:
            return None
    return EvalNorm(reader.name(options["weight"]), reader.name(options["bias"]), mean, variance, options["eps"])


def _computed(reader: Reader, node: fx.Node, offset: str) -> None:
    """A kernel that was computed from parameters: a product of input and kernel, and the offset added."""
    options = reader.arguments(node)
    pair, bias = (options["input"], options["weight"]), options[offset]
    moving = tuple(source for source in dict.fromkeys(pair) if not reader.is_constant(source))
    if len(moving) != 2 or bias is None:
        if bias is None and len(moving) == 2:
            reader.write(node, BilinearOperation(reader.as_operation(node, moving)), *map(reader.slot, moving))
        else:
            Reader.by_autograd(reader, node)
        return
    operation = reader.as_operation(node, (*moving, bias))
    place = [argument.name for argument in node.target._schema.arguments].index(offset)  # type: ignore[union-attr]
    args = (*operation.args[:place], None, *operation.args[place + 1 :])
    product = reader.append(
        BilinearOperation(type(operation)(operation.target, args, operation.kwargs)), *map(reader.slot, moving)
    )
    spatial = max(len(reader.shape(options["weight"])) - 2, 0)
    shaped = reader.slot(bias)
    if spatial:
        shaped = reader.append(LinearMap(partial(_on_channels, spatial)), shaped)
    reader.write(node, Combined(1.0, 1.0), product, shaped)


def _on_channels(spatial: int, vector: Any) -> Any:
    return vector.reshape(-1, *[1] * spatial)


RULES = {
    "conv1d": convolution,
    "conv2d": convolution,
    "conv3d": convolution,
    "conv_transpose1d": transposed_convolution,
    "conv_transpose2d": transposed_convolution,
    "conv_transpose3d": transposed_convolution,
    "linear": linear,
}
