"""Activations: ReLU and its kin, those made of pieces, and smooth ones."""

from __future__ import annotations

from torch import fx

from leakgauge.attacks.matching.engine.layers import Added, Convolution, Layer, Linear, Rectifier
from leakgauge.attacks.matching.engine.layers import switches as pieces
from leakgauge.attacks.matching.engine.layers.activations import SMOOTH, power, smooth_by_autograd
from leakgauge.attacks.matching.engine.layers.operations import Hole
from leakgauge.attacks.matching.engine.layers.products import Combined, Product
from leakgauge.attacks.matching.engine.reader import Reader
from leakgauge.attacks.matching.engine.rules.shapes import shaped


def relu(reader: Reader, node: fx.Node) -> None:
    _rectify(reader, node, 0.0)


def leaky_relu(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    slope = float(options["negative_slope"])
    if slope < 0:
        reader.write(node, pieces.leaky(slope), reader.slot(options["self"]))
    else:
        _rectify(reader, node, slope)


def _rectify(reader: Reader, node: fx.Node, slope: float) -> None:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    slot = reader.slot(source)
    reader.write(node, Rectifier(slope, overwrite=_is_free(reader, source, slot)), slot)


def _is_free(reader: Reader, source: fx.Node, slot: int) -> bool:
    """Whether a result is new and read by nobody else, so that it may be written over."""
    fresh = slot > 0 and isinstance(reader.steps[slot - 1].layer, Convolution | Linear | Added)
    readers = [user for user in source.users if reader.known.get(user) != slot]
    return fresh and len(readers) == 1 and not reader.is_read(slot)


def prelu(reader: Reader, node: fx.Node) -> None:
    """x where it is positive, a trained slope times x elsewhere: relu(x) + slope (x - relu(x))."""
    options = reader.arguments(node)
    slot, slope = reader.slot(options["self"]), reader.slot(options["weight"])
    axes = len(reader.shape(node)) - 2
    if reader.shape(options["weight"]).numel() > 1:
        slope = reader.append(shaped((-1, *[1] * axes)), slope)
    above = reader.append(Rectifier(0.0), slot)
    below = reader.append(Combined(1.0, -1.0), slot, above)
    reader.write(node, Added(), above, reader.append(Product(), below, slope))


def smooth(reader: Reader, node: fx.Node) -> None:
    """Known by its two derivatives, or by what autograd says of them."""
    moving = reader.moving(node)
    operation = reader.as_operation(node, moving)
    if len(moving) != 1 or (
        len(operation.args) > 1 and not all(isinstance(a, int | float) for a in operation.args[1:])
    ):
        Reader.by_autograd(reader, node)
        return
    name = str(node.target).split(".")[1].removesuffix("_")
    plain = operation.args == (Hole(0),) and not any(value for value in operation.kwargs.values() if value != "none")
    if plain and name in SMOOTH:
        layer: Layer = SMOOTH[name]
    elif name == "pow" and operation.args[0] == Hole(0) and not operation.kwargs:
        layer = power(operation.args[1])
    else:
        layer = smooth_by_autograd(operation.bind({}))
    reader.write(node, layer, reader.slot(moving[0]))


def piecewise(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    name = str(node.target).split(".")[1].removesuffix("_")
    numbers = [value for value in options.values() if not isinstance(value, fx.Node | bool)]
    if not all(value is None or isinstance(value, int | float) for value in numbers) or len(reader.moving(node)) != 1:
        Reader.by_autograd(reader, node)
        return
    source = node.args[0]
    assert isinstance(source, fx.Node)
    slot = reader.slot(source)
    if name in ("hardtanh", "relu6"):
        low, high = numbers or (0.0, 6.0)
        reader.write(node, pieces.Clamped(low, high, overwrite=_is_free(reader, source, slot)), slot)
    else:
        reader.write(node, _pieces(name, *numbers), slot)


def _pieces(name: str, *numbers: float) -> Layer:
    if name in ("clamp", "clip"):
        return pieces.clamp(numbers[0], numbers[1], upwards=False)
    if name == "clamp_min":
        return pieces.clamp(numbers[0], None, upwards=False)
    if name == "clamp_max":
        return pieces.clamp(None, numbers[0], upwards=False)
    if name in ("softshrink", "hardshrink"):
        return (pieces.soft_shrink if name == "softshrink" else pieces.hard_shrink)(numbers[0])
    if name == "threshold":
        return pieces.threshold(numbers[0], numbers[1])
    return {"hardswish": pieces.HardSwish(), "hardsigmoid": pieces.HardSigmoid()}.get(name, pieces.ABSOLUTE)


SMOOTH_NAMES = frozenset(
    {
        "sigmoid", "tanh", "gelu", "silu", "softplus", "elu", "celu", "selu", "mish", "exp", "log", "sqrt", "rsqrt",
        "square", "pow", "sin", "cos", "erf", "erfc", "expm1", "log1p", "log2", "log_sigmoid", "reciprocal", "atan",
        "sinh", "cosh", "asinh", "exp2", "logit", "special_expit", "glu",
    }
)  # fmt: skip

_STEPS = ("detach", "floor", "ceil", "round", "trunc", "sign", "sgn", "floor_divide", "heaviside", "fix")
"""Of derivative 0, or cut off on purpose."""

RULES = {
    **dict.fromkeys(_STEPS, Reader.undifferentiated),
    "relu": relu,
    "leaky_relu": leaky_relu,
    "prelu": prelu,
    **dict.fromkeys(SMOOTH_NAMES - {"glu"}, smooth),
    **dict.fromkeys(
        (
            "hardtanh", "relu6", "hardswish", "hardsigmoid", "clamp", "clip", "clamp_min", "clamp_max", "abs",
            "softshrink", "hardshrink", "threshold",
        ),
        piecewise,
    ),
}  # fmt: skip
