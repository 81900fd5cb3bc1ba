"""Matrix products, einsum, and other products of two tensors."""

from __future__ import annotations

from torch import fx

from leakgauge.attacks.matching.engine.layers.products import BilinearOperation, Combined, MatrixProduct
from leakgauge.attacks.matching.engine.reader import Reader


def matmul(reader: Reader, node: fx.Node) -> None:
    one, two = node.args[:2]
    assert isinstance(one, fx.Node)
    assert isinstance(two, fx.Node)
    if reader.is_constant(one) or reader.is_constant(two):
        reader.linear(node)
    elif min(len(reader.shape(one)), len(reader.shape(two))) < 2:
        bilinear(reader, node)
    else:
        reader.write(node, MatrixProduct(), reader.slot(one), reader.slot(two))


def addmm(reader: Reader, node: fx.Node) -> None:
    options = reader.arguments(node)
    offset, one, two = node.args[:3]
    if options["alpha"] != 1 or options["beta"] != 1 or any(map(reader.is_constant, (one, two))):
        Reader.by_autograd(reader, node)
    else:
        product = reader.append(MatrixProduct(), reader.slot(one), reader.slot(two))
        reader.write(node, Combined(1.0, 1.0), product, reader.slot(offset))


def bilinear(reader: Reader, node: fx.Node) -> None:
    moving = reader.moving(node)
    operands = [source for source in _operands(node) if isinstance(source, fx.Node)]
    if len(moving) == 1 and len(operands) == len(set(operands)):
        reader.linear(node)
    elif len(moving) == 2 and len(operands) == 2:
        reader.write(node, BilinearOperation(reader.as_operation(node, moving)), *map(reader.slot, moving))
    else:
        Reader.by_autograd(reader, node)


def _operands(node: fx.Node) -> list[object]:
    found: list[object] = []
    for argument in node.args:
        found += argument if isinstance(argument, list | tuple) else [argument]
    return found


RULES = {
    **dict.fromkeys(("matmul", "mm", "bmm"), matmul),
    "addmm": addmm,
    "baddbmm": addmm,
    **dict.fromkeys(("einsum", "dot", "mv", "outer", "inner", "tensordot", "kron", "chain_matmul"), bilinear),
}
