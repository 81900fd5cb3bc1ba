"""Sums, differences, products and quotients, with numbers, buffers, parameters or each other."""

from __future__ import annotations

from torch import fx

from leakgauge.attacks.matching.engine.layers import Added, Scaled, Shifted
from leakgauge.attacks.matching.engine.layers.activations import SMOOTH
from leakgauge.attacks.matching.engine.layers.products import Combined, Product
from leakgauge.attacks.matching.engine.reader import Reader
from leakgauge.attacks.matching.engine.rules.shapes import repeated

_INVERSE = SMOOTH["reciprocal"]


def add(reader: Reader, node: fx.Node) -> None:
    _sum(reader, node, 1.0, float(reader.arguments(node)["alpha"]))


def subtract(reader: Reader, node: fx.Node) -> None:
    _sum(reader, node, 1.0, -float(reader.arguments(node)["alpha"]))


def subtract_from(reader: Reader, node: fx.Node) -> None:
    _sum(reader, node, -float(reader.arguments(node)["alpha"]), 1.0)


def _sum(reader: Reader, node: fx.Node, left: float, right: float) -> None:
    one, two = node.args[:2]
    shapes = [tuple(reader.shape(x)) for x in (one, two) if isinstance(x, fx.Node)]
    constants = [reader.is_constant(x) for x in (one, two)]
    if not any(constants):
        plain = left == right == 1 and len(set(shapes)) == 1
        reader.write(node, Added() if plain else Combined(left, right), reader.slot(one), reader.slot(two))
        return
    moving, other, signs = (two, one, (right, left)) if constants[0] else (one, two, (left, right))
    if abs(signs[0]) != 1:
        reader.write(node, Combined(left, right), *_slots(reader, node, one, two))
        return
    slot = _broadcast(reader, node, moving)
    held = reader.name(other) if isinstance(other, fx.Node) else other
    assert isinstance(held, str | int | float)
    reader.write(node, Shifted(held, *signs), slot)


def multiply(reader: Reader, node: fx.Node) -> None:
    one, two = node.args[:2]
    if not reader.is_constant(one) and not reader.is_constant(two):
        reader.write(node, Product(), reader.slot(one), reader.slot(two))
        return
    moving, other = (two, one) if reader.is_constant(one) else (one, two)
    _scale(reader, node, moving, other, divide=False)


def divide(reader: Reader, node: fx.Node) -> None:
    one, two = node.args[:2]
    if reader.arguments(node).get("rounding_mode") is not None:
        reader.undifferentiated(node)
    elif reader.is_constant(two):
        _scale(reader, node, one, two, divide=True)
    else:
        assert isinstance(two, fx.Node)
        inverse = reader.append(_INVERSE, reader.slot(two))
        if reader.is_constant(one):
            held = reader.name(one) if isinstance(one, fx.Node) else one
            if isinstance(one, fx.Node):
                inverse = _expanded(reader, node, two, inverse)
            assert isinstance(held, str | int | float)
            reader.write(node, Scaled(held, divide=False), inverse)
        else:
            reader.write(node, Product(), reader.slot(one), inverse)


def negate(reader: Reader, node: fx.Node) -> None:
    reader.write(node, Scaled(-1.0, divide=False), reader.slot(node.args[0]))


def _scale(reader: Reader, node: fx.Node, moving: object, other: object, *, divide: bool) -> None:
    held = reader.name(other) if isinstance(other, fx.Node) else other
    assert isinstance(held, str | int | float)
    reader.write(node, Scaled(held, divide=divide), _broadcast(reader, node, moving))


def _slots(reader: Reader, node: fx.Node, *operands: object) -> list[int]:
    if any(not isinstance(operand, fx.Node) for operand in operands):
        reader.refuse(node, "a number with a factor of its own")
    return [reader.slot(operand) for operand in operands]


def _broadcast(reader: Reader, node: fx.Node, moving: object) -> int:
    """The tensor's slot, repeated to the shape of the result where a constant makes it larger."""
    assert isinstance(moving, fx.Node)
    slot = reader.slot(moving)
    return slot if reader.shape(moving) == reader.shape(node) else _expanded(reader, node, moving, slot)


def _expanded(reader: Reader, node: fx.Node, moving: fx.Node, slot: int) -> int:
    return reader.append(repeated(tuple(reader.shape(moving)), tuple(reader.shape(node))), slot)


RULES = {
    "add": add,
    "sub": subtract,
    "subtract": subtract,
    "rsub": subtract_from,
    "mul": multiply,
    "multiply": multiply,
    "div": divide,
    "divide": divide,
    "true_divide": divide,
    "neg": negate,
    "negative": negate,
}
