"""Turning the operations a model performed into steps of a network, each by the rule of its kind."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from leakgauge.attacks.matching.engine.layers import Layer
from leakgauge.attacks.matching.engine.layers.operations import (
    Constant,
    Differentiated,
    Held,
    Hole,
    LinearOperation,
    Operation,
    Parameter,
    Undifferentiated,
)
from leakgauge.attacks.matching.engine.network import Network, NetworkStep
from leakgauge.attacks.matching.engine.recording import RecordedNetwork, unknown

Rule = Callable[["Reader", fx.Node], None]


class Reader:
    """What is known of each operation so far: the slot it wrote, or the name of a tensor that images do not move."""

    def __init__(
        self,
        recording: RecordedNetwork,
        trained: frozenset[str],
        rules: Mapping[str, Rule],
        *,
        fold: bool,
        smooth: frozenset[str],
    ) -> None:
        self.recording, self.trained, self.rules, self.fold, self.smooth = recording, trained, rules, fold, smooth
        self.known: dict[fx.Node, int | str] = {}
        self.steps: list[NetworkStep] = []
        self.constants: list[tuple[str, Operation | Tensor]] = []
        self.uses: Counter[str] = Counter()
        self.sources: dict[str, int] = {}
        self.families: dict[fx.Node, fx.Node] = {}
        self.cut = False

    def read(self) -> Network:
        graph = self.recording.graph
        inputs = iter((None, *self.recording.names))
        output: fx.Node | None = None
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                name = next(inputs)
                self.known[node] = 0 if name is None else name
            elif node.op == "get_attr":
                self.known[node] = self.constant(getattr(graph, str(node.target)))
            elif node.op == "output":
                output = node
            elif node not in self.known:
                self.operation(node)
        assert output is not None
        return self.network(output)

    def network(self, output: fx.Node) -> Network:
        outputs: list[int] = []

        def place(leaf: Any) -> Any:
            if not isinstance(leaf, fx.Node):
                return leaf
            known = self.known[leaf]
            if isinstance(known, str) and known not in self.trained:
                return Held(known)
            outputs.append(self.slot(leaf))
            return Hole(len(outputs) - 1)

        result = pytree.tree_unflatten([place(leaf) for leaf in output.args[0]], self.recording.structure)  # type: ignore[union-attr]
        if not outputs:
            raise unknown("its output does not depend on the images or the parameters")
        needed, steps = set(outputs), []
        for step in reversed(self.steps):
            if step.output in needed:
                needed.update(step.inputs)
                steps.append(step)
        steps.reverse()
        seen, learnt = {0}, set()
        for step in steps:
            if isinstance(step.layer, Undifferentiated):
                continue
            if any(slot in seen for slot in step.inputs):
                seen.add(step.output)
            own = any(name in self.trained for name in step.layer.names())
            if own or any(slot in learnt for slot in step.inputs):
                learnt.add(step.output)
        shared = frozenset(name for name, count in self.uses.items() if count > 1)
        return Network(
            tuple(steps), tuple(outputs), tuple(self.trained), result, tuple(self.constants),
            frozenset(seen), frozenset(learnt), shared,
        )  # fmt: skip

    def operation(self, node: fx.Node) -> None:
        target: Any = node.target
        if target is torch._C._set_grad_enabled:
            self.cut = not node.args[0]
            return
        if target is operator.getitem:
            self.part(node)
            return
        if not isinstance(target, OpOverload):
            self.refuse(node)
        name = target._schema.name.removeprefix("aten::")
        written = [argument for argument in target._schema.arguments if argument.is_write]
        if torch.Tag.nondeterministic_seeded in target.tags and not self.is_quiet(name, node):
            self.refuse(node, "it draws at random")
        if all(self.is_constant(source) for source in node.all_input_nodes):
            if written and self.known[node.all_input_nodes[0]] in self.recording.names:
                self.refuse(node, "it writes to a tensor that is part of the model")
            self.known[node] = self.constant(self.as_operation(node, ()))
        elif isinstance(node.meta.get("val"), list | tuple):
            return  # its parts are read one by one
        elif self.cut or not _is_real(node):
            self.undifferentiated(node)
        else:
            self.rules.get(name.removesuffix("_") if written else name, Reader.by_autograd)(self, node)
        self.follow(node, bool(written))

    def follow(self, node: fx.Node, writes: bool) -> None:
        """After a write in place, what was there reads as what is there now; a view that is read later would lie."""
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node):
            return
        target: Any = node.target
        views = any(one.alias_info is not None for one in target._schema.returns)
        if views:
            self.families[node] = self.families.get(source, source)
        if not writes:
            return
        family = self.families.get(source, source)
        order = {other: number for number, other in enumerate(self.recording.graph.graph.nodes)}
        for other, own in [*self.families.items(), (family, family)]:
            if own is family and other not in (source, node) and any(order[user] > order[node] for user in other.users):
                self.refuse(node, "it writes through a view")
        self.known[source] = self.known[node]

    def part(self, node: fx.Node) -> None:
        """One of the results of an operation with several."""
        source, number = node.args
        assert isinstance(source, fx.Node)
        if source in self.known:
            name = self.known[source]
            assert isinstance(name, str)
            self.known[node] = self.constant(Operation(operator.getitem, (Held(name), number), {}))
            return
        target: Any = source.target
        rule = self.rules.get(f"{target._schema.name.removeprefix('aten::')}[{number}]")
        if self.cut or not _is_real(node):
            self.undifferentiated(node)
        elif rule is not None:
            rule(self, node)
        else:
            Reader.by_autograd(self, node)

    # What rules ask for and write

    def refuse(self, node: fx.Node, why: str = "an operation without a rule") -> NoReturn:
        target: Any = node.target
        name = target._schema.name.removeprefix("aten::") if isinstance(target, OpOverload) else str(target)
        layer = self.recording.layers.get(node, "")
        raise unknown(f"{name}{f' in {layer}' if layer else ''}: {why}")

    def arguments(self, node: fx.Node) -> dict[str, Any]:
        """Of the operation, by name, with the values left out."""
        target: Any = node.target
        found: dict[str, Any] = {}
        for place, argument in enumerate(target._schema.arguments):
            if place < len(node.args):
                found[argument.name] = node.args[place]
            else:
                found[argument.name] = node.kwargs.get(argument.name, argument.default_value)
        return found

    def shape(self, node: fx.Node) -> torch.Size:
        return node.meta["val"].shape

    def is_constant(self, value: object) -> bool:
        """Whether neither images nor training move it."""
        if not isinstance(value, fx.Node):
            return True
        known = self.known.get(value)
        return isinstance(known, str) and known not in self.trained

    def name(self, value: object) -> str | None:
        """The name of a tensor of the state, or of a constant."""
        known = self.known.get(value) if isinstance(value, fx.Node) else None
        return known if isinstance(known, str) else None

    def slot(self, source: object) -> int:
        """Where the tensor is written; a parameter or constant becomes a value of the network."""
        assert isinstance(source, fx.Node)
        known = self.known[source]
        if isinstance(known, int):
            return known
        if known not in self.sources:
            trained = known in self.trained
            self.sources[known] = self.append(Parameter(known) if trained else Constant(known))
        return self.sources[known]

    def is_read(self, slot: int) -> bool:
        """Whether a step reads this slot already."""
        return any(slot in step.inputs for step in self.steps)

    def constant(self, made: Operation | Tensor) -> str:
        name = f"constant {len(self.constants)}"
        self.constants.append((name, made))
        return name

    def append(self, layer: Layer, *slots: int) -> int:
        """One step more; the slot it writes."""
        slot = 1 + len(self.steps)
        self.steps.append(NetworkStep(layer, slots, slot))
        self.uses.update(name for name in layer.names() if name in self.trained)
        return slot

    def write(self, node: fx.Node, layer: Layer, *slots: int) -> None:
        self.known[node] = self.append(layer, *slots)

    def as_operation(self, node: fx.Node, moving: tuple[fx.Node, ...]) -> Operation:
        """The operation of a node, or of the tuple a node is part of, with holes for ``moving``."""
        called: Any = node
        part: Any = None
        if node.target is operator.getitem:
            called, part = node.args

        def place(source: fx.Node) -> Any:
            return Hole(moving.index(source)) if source in moving else Held(str(self.known[source]))

        args, kwargs = fx.node.map_arg((called.args, dict(called.kwargs)), place)
        return Operation(_functional(called.target), args, kwargs, part)

    def moving(self, node: fx.Node) -> tuple[fx.Node, ...]:
        """What an operation reads that images or training move."""
        called = node if node.target is not operator.getitem else node.args[0]
        assert isinstance(called, fx.Node)
        return tuple(source for source in called.all_input_nodes if not self.is_constant(source))

    def linear(self, node: fx.Node) -> None:
        """An operation that is linear in the one tensor it reads, with anything else by autograd."""
        moving = self.moving(node)
        if len(moving) == 1:
            self.write(node, LinearOperation(self.as_operation(node, moving)), self.slot(moving[0]))
        else:
            Reader.by_autograd(self, node)

    def by_autograd(self, node: fx.Node) -> None:
        moving = self.moving(node)
        called: Any = node if node.target is not operator.getitem else node.args[0]
        smooth = called.target._schema.name.removeprefix("aten::") in self.smooth
        self.write(node, Differentiated(self.as_operation(node, moving), smooth), *map(self.slot, moving))

    def undifferentiated(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, Tensor) and value.is_complex() and not self.cut:
            self.refuse(node, "complex numbers")
        moving = self.moving(node)
        self.write(node, Undifferentiated(self.as_operation(node, moving), len(moving)), *map(self.slot, moving))

    def is_quiet(self, name: str, node: fx.Node) -> bool:
        """Whether an operation that could draw at random does not: dropout that drops nothing."""
        options = self.arguments(node)
        if name == "scaled_dot_product_attention":
            return options["dropout_p"] == 0
        return options.get("train", True) is False or options.get("training", True) is False


def _is_real(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.is_floating_point()


def _composed(target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A recurrent layer of its cells: fused, it keeps what its derivative needs only where autograd asks at once."""
    before = torch._C._get_mkldnn_enabled()
    try:
        torch._C._set_mkldnn_enabled(False)
        return target(*args, **kwargs)
    finally:
        torch._C._set_mkldnn_enabled(before)


_RECURRENT = frozenset({"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"})


def _functional(target: Any) -> Callable[..., Any]:
    """The operation itself, where it was called to write its result over its input."""
    if isinstance(target, OpOverload) and target._schema.name in _RECURRENT:
        return partial(_composed, target)
    if not isinstance(target, OpOverload) or not any(argument.is_write for argument in target._schema.arguments):
        return target
    return getattr(torch.ops.aten, target._schema.name.removeprefix("aten::").removesuffix("_"))
