"""Reading a module as a list of layers the engine knows; anything else is refused and differentiated by autograd."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp, TensorMetadata
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from leakgauge.attacks.matching.engine.layers import (
    Added,
    ChannelAffine,
    Convolution,
    EvalNorm,
    GroupedNorm,
    Joined,
    Layer,
    Linear,
    LinearMap,
    MaxPool,
    Rectifier,
    Reshaped,
    Scaled,
    Shifted,
)
from leakgauge.attacks.matching.engine.layers.activations import SMOOTH
from leakgauge.attacks.matching.engine.layers.normalisation import BATCH, group_layout, layer_layout
from leakgauge.attacks.matching.engine.modules import apply_first, as_is, module_layer, unknown
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.learner import Learner
from leakgauge.types import ModelState


class NetworkStep(NamedTuple):
    """A layer, the slots it reads and the slot it writes; slot 0 holds the images."""

    layer: Layer
    inputs: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class Network:
    steps: tuple[NetworkStep, ...]
    output: int
    trained: tuple[str, ...]

    def readers(self) -> Counter[int]:
        """How many steps read each slot."""
        return Counter(slot for step in self.steps for slot in step.inputs)


def trace(learner: Learner, state: ModelState, images: Tensor, *, fold: bool = True) -> Network:
    """The network of a learner; with ``fold``, BatchNorm in eval mode becomes part of the layer before it."""
    try:
        graph = fx.symbolic_trace(learner.module)
        with torch.no_grad():
            ShapeProp(graph).propagate(torch.empty_like(images, device="meta"))
        return _Reader(graph, state, fold).read()
    except UnsupportedModel:
        raise
    except Exception as error:  # a user's module may fail to trace in any way
        raise unknown(f"it cannot be traced: {next(iter(str(error).splitlines()), repr(error))}") from error


class _Size(NamedTuple):
    """The length of an axis, as code asks for it before a reshape; without an axis, the whole shape."""

    of: fx.Node
    axis: int | None


class _Reader:
    """Turns the nodes of a traced module into steps."""

    def __init__(self, graph: fx.GraphModule, state: ModelState, fold: bool) -> None:
        self.graph, self.fold = graph, fold
        self.modules = dict(graph.named_modules())
        self.trained = frozenset(state.params)
        self.available = self.trained | frozenset(state.buffers)
        self.slots: dict[fx.Node, int] = {}
        self.constants: dict[fx.Node, Any] = {}
        self.steps: list[NetworkStep] = []
        self.used: Counter[str] = Counter()

    def read(self) -> Network:
        output: int | None = None
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                if self.slots:
                    self.refuse(node, "a second input")
                self.slots[node] = 0
            elif node.op == "get_attr":
                self.constants[node] = self.require(str(node.target), node)
            elif node.op == "output":
                output = self.slots.get(node.args[0]) if isinstance(node.args[0], fx.Node) else None
            elif node not in self.slots:
                self.step(node)
        if output is None:
            raise unknown("its output is not one tensor")
        if any(count > 1 for count in self.used.values()):
            raise unknown("a parameter is used by more than one layer")
        return Network(self.living_steps(output), output, tuple(self.trained))

    def living_steps(self, output: int) -> tuple[NetworkStep, ...]:
        """The steps the output depends on."""
        needed, kept = {output}, []
        for step in reversed(self.steps):
            if step.output in needed:
                needed.update(step.inputs)
                kept.append(step)
        return tuple(reversed(kept))

    def step(self, node: fx.Node) -> None:
        if node.op == "call_module":
            self.module(node, self.modules[str(node.target)])
        elif (size := self.size(node)) is not None:
            self.constants[node] = size
        else:
            self.function(node)

    def write(self, node: fx.Node, layer: Layer, inputs: tuple[fx.Node, ...]) -> None:
        self.slots[node] = self.append(layer, tuple(self.slot(source, node) for source in inputs))

    def append(self, layer: Layer, inputs: tuple[int, ...]) -> int:
        """One step more; the slot it writes."""
        slot = 1 + len(self.steps)
        self.steps.append(NetworkStep(layer, inputs, slot))
        return slot

    def slot(self, source: object, reader: fx.Node) -> int:
        if not isinstance(source, fx.Node) or source not in self.slots:
            self.refuse(reader, "an operand that is no tensor of the network")
        return self.slots[source]

    def refuse(self, node: fx.Node, why: str = "an operation without a rule") -> NoReturn:
        target: Any = node.target
        raise unknown(f"{target if isinstance(target, str) else getattr(target, '__name__', target)}: {why}")

    def require(self, name: str, node: fx.Node) -> str:
        if name not in self.available:
            self.refuse(node, "a tensor that is not in the state")
        return name

    def parameters(self, node: fx.Node, module: nn.Module, *names: str) -> list[str | None]:
        found: list[str | None] = []
        for name in names:
            if getattr(module, name, None) is None:
                found.append(None)
            else:
                full = self.require(f"{node.target}.{name}", node)
                self.used[full] += full in self.trained
                found.append(full)
        return found

    # Modules

    def module(self, node: fx.Node, module: nn.Module) -> None:
        (source,) = node.args if len(node.args) == 1 else (None,)
        if not isinstance(source, fx.Node) or node.kwargs:
            self.refuse(node, "not one input")
        if isinstance(module, _ConvNd | nn.Linear):
            self.affine(node, module, source)
        elif isinstance(module, _BatchNorm):
            self.batch_norm(node, module, source)
        elif isinstance(module, nn.GroupNorm | nn.LayerNorm | _InstanceNorm):
            self.write(node, self.own_statistics_norm(node, module, source), (source,))
        elif isinstance(module, nn.ReLU | nn.LeakyReLU):
            self.rectifier(node, source, getattr(module, "negative_slope", 0.0))
        else:
            layer = module_layer(module)
            if layer is None:
                self.refuse(node)
            self.write(node, layer, (source,))

    def affine(self, node: fx.Node, module: nn.Module, source: fx.Node) -> None:
        norm_node = self.foldable(node)
        norm = None if norm_node is None else self.eval_norm(norm_node)
        weight, bias = self.parameters(node, module, "weight", "bias")
        assert weight is not None
        shape = _shape(node)
        # Where the kernel is larger than the map, scaling the map is cheaper than a second copy of the kernel.
        options = (weight, bias, norm, self.trained, module.get_parameter("weight").numel() <= shape.numel())
        slot = self.slot(source, node)
        layer: Layer
        if isinstance(module, nn.Linear):
            layer = Linear(*options)
        elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            padding = module.padding
            if isinstance(padding, str) or module.padding_mode != "zeros":
                # Both in one way: pad first, by the map's own rule, then convolve without.
                mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
                pads = tuple(module._reversed_padding_repeated_twice)
                slot = self.append(LinearMap(partial(functional.pad, pad=pads, mode=mode)), (slot,))
                padding = (0,) * len(module.kernel_size)
            layer = Convolution(*options, module.stride, padding, module.dilation, module.groups)
        else:
            self.refuse(node)
        self.slots[node] = self.append(layer, (slot,))
        if norm_node is not None:
            self.slots[norm_node] = self.slots[node]

    def foldable(self, node: fx.Node) -> fx.Node | None:
        """The BatchNorm in eval mode that alone reads this node."""
        if not self.fold or len(node.users) != 1:
            return None
        (reader,) = node.users
        module = self.modules.get(str(reader.target)) if reader.op == "call_module" else None
        known = isinstance(module, _BatchNorm) and not _uses_batch(module) and len(_shape(node)) in (2, 3, 4, 5)
        linear = isinstance(self.modules[str(node.target)], nn.Linear)
        return reader if known and (not linear or len(_shape(node)) == 2) else None

    def eval_norm(self, node: fx.Node) -> EvalNorm:
        module = self.modules[str(node.target)]
        assert isinstance(module, _BatchNorm)
        gamma, beta, mean, variance = self.parameters(node, module, "weight", "bias", "running_mean", "running_var")
        assert mean is not None
        assert variance is not None
        return EvalNorm(gamma, beta, mean, variance, module.eps)

    def batch_norm(self, node: fx.Node, module: _BatchNorm, source: fx.Node) -> None:
        if not _uses_batch(module):
            self.write(node, ChannelAffine(self.eval_norm(node), self.trained), (source,))
            return
        gamma, beta = self.parameters(node, module, "weight", "bias")
        self.write(node, GroupedNorm(gamma, beta, module.eps, BATCH, self.trained), (source,))

    def own_statistics_norm(self, node: fx.Node, module: nn.Module, source: fx.Node) -> Layer:
        gamma, beta = self.parameters(node, module, "weight", "bias")
        if isinstance(module, nn.LayerNorm):
            layout = layer_layout(len(module.normalized_shape))
        elif isinstance(module, nn.GroupNorm):
            layout = group_layout(module.num_groups)
        else:
            assert isinstance(module, _InstanceNorm)
            if module.running_mean is not None and not module.training:
                self.refuse(node, "instance norm with running statistics")
            layout = group_layout(_shape(source)[1])
        return GroupedNorm(gamma, beta, float(module.eps), layout, self.trained)

    def rectifier(self, node: fx.Node, source: fx.Node, slope: float) -> None:
        if slope < 0:
            self.refuse(node, "a negative slope below zero")
        writer = next((step for step in self.steps if step.output == self.slots.get(source)), None)
        fresh = writer is not None and isinstance(writer.layer, Convolution | Linear | Added)
        readers = [user for user in source.users if self.slots.get(user) != self.slots.get(source)]
        self.write(node, Rectifier(slope, overwrite=fresh and len(readers) == 1), (source,))

    # Functions and methods

    def function(self, node: fx.Node) -> None:
        target: Any = node.target
        name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
        name = {"iadd": "add", "add_": "add", "relu_": "relu", "imul": "mul", "isub": "sub", "itruediv": "truediv"}.get(
            name, name
        )
        tensors = [arg for arg in node.args if isinstance(arg, fx.Node) and arg in self.slots]
        if name == "add" and len(tensors) == len(node.args) == 2:
            self.write_sum(node)
        elif name in ("add", "sub", "mul", "truediv", "div"):
            self.arithmetic(node, name)
        elif name in ("cat", "concat"):
            self.write_joined(node)
        elif name == "relu":
            self.rectifier(node, self.source(node), 0.0)
        elif name == "leaky_relu":
            slope: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
            self.rectifier(node, self.source(node), float(slope))
        elif name in SMOOTH and not any(node.kwargs.values()) and len(node.args) == 1:
            self.write(node, SMOOTH[name], (self.source(node),))
        elif name in ("view", "reshape", "flatten"):
            self.write_reshaped(node, name)
        elif name in ("adaptive_avg_pool2d", "avg_pool2d", "mean") and self.plain(node):
            called: Any = getattr(Tensor, target) if isinstance(target, str) else target
            self.write(node, LinearMap(_call(called, node)), (self.source(node),))
        elif name == "max_pool2d" and self.plain(node) and not node.kwargs.get("return_indices"):
            options = {**node.kwargs, "return_indices": True}
            pool = partial(apply_first, functional.max_pool2d, tuple(node.args[1:]), options)
            self.write(node, MaxPool(pool, 2), (self.source(node),))
        elif name == "contiguous" or (name == "dropout" and node.kwargs.get("training", True) is False):
            self.write(node, Reshaped(as_is), (self.source(node),))
        else:
            self.refuse(node)

    def source(self, node: fx.Node) -> fx.Node:
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node):
            self.refuse(node)
        return source

    def plain(self, node: fx.Node) -> bool:
        """Every argument after the first is a literal."""
        return not any(isinstance(value, fx.Node) for value in (*node.args[1:], *node.kwargs.values()))

    def write_sum(self, node: fx.Node) -> None:
        left, right = node.args[:2]
        assert isinstance(left, fx.Node)
        assert isinstance(right, fx.Node)
        if node.kwargs or _shape(left) != _shape(right):
            self.refuse(node, "a sum of tensors of different shapes")
        self.write(node, Added(), (left, right))

    def write_joined(self, node: fx.Node) -> None:
        tensors = node.args[0] if node.args else None
        axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        if not isinstance(tensors, list | tuple) or not isinstance(axis, int) or axis == 0:
            self.refuse(node)
        self.write(node, Joined(axis), tuple(t for t in tensors if isinstance(t, fx.Node)))

    def arithmetic(self, node: fx.Node, name: str) -> None:
        left, right = node.args[:2] if len(node.args) == 2 and not node.kwargs else (None, None)
        if isinstance(left, fx.Node) and left in self.slots:
            source, other, reflected = left, right, False
        elif isinstance(right, fx.Node) and right in self.slots and name not in ("truediv", "div"):
            source, other, reflected = right, left, True
        else:
            self.refuse(node)
        constant: Any = self.constants.get(other) if isinstance(other, fx.Node) else other
        if not isinstance(constant, str | int | float) or (isinstance(constant, str) and constant in self.trained):
            self.refuse(node, "arithmetic with what is neither a number nor a buffer")
        if _shape(source) != _shape(node):
            self.refuse(node, "arithmetic that changes the shape")
        if name in ("add", "sub"):
            signs = (1.0, 1.0) if name == "add" else ((-1.0, 1.0) if reflected else (1.0, -1.0))
            self.write(node, Shifted(constant, *signs), (source,))
        else:
            self.write(node, Scaled(constant, divide=name in ("truediv", "div")), (source,))

    def size(self, node: fx.Node) -> _Size | None:
        """``x.size(k)`` or ``x.shape[k]``, as a reshape asks for it."""
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or node.kwargs:
            return None
        if (node.op == "call_method" and node.target == "size") or (node.target is getattr and node.args[1] == "shape"):
            axis = node.args[1] if node.target == "size" and len(node.args) == 2 else None
            return _Size(source, axis if isinstance(axis, int) else None)
        whole = self.constants.get(source)
        if node.target is operator.getitem and isinstance(whole, _Size) and isinstance(node.args[1], int):
            return _Size(whole.of, node.args[1])
        return None

    def write_reshaped(self, node: fx.Node, name: str) -> None:
        source = self.source(node)
        if name == "flatten":
            self.write(node, Reshaped(_call(torch.flatten, node)), (source,))
            return
        arguments: Any = node.args[1:]
        if len(arguments) == 1 and isinstance(arguments[0], tuple | list):
            arguments = tuple(arguments[0])
        shape: list[int | None] = []
        for argument in arguments:
            size = self.constants.get(argument) if isinstance(argument, fx.Node) else argument
            if isinstance(size, _Size) and (size.axis != 0 or _shape(size.of)[0] != _shape(source)[0]):
                self.refuse(node, "a reshape by an axis other than the batch")
            shape.append(None if isinstance(size, _Size) else size)
        if not all(size is None or isinstance(size, int) for size in shape):
            self.refuse(node)
        self.write(node, Reshaped(partial(_reshape, tuple(shape))), (source,))


def _reshape(shape: tuple[int | None, ...], x: Tensor) -> Tensor:
    return x.reshape([x.shape[0] if size is None else size for size in shape])


def _call(function: Callable[..., Any], node: fx.Node) -> Callable[[Tensor], Any]:
    return partial(apply_first, function, tuple(node.args[1:]), dict(node.kwargs))


def _shape(node: fx.Node) -> torch.Size:
    found = node.meta.get("tensor_meta")
    if not isinstance(found, TensorMetadata):
        raise unknown(f"{node.target}: not one tensor")
    return found.shape


def _uses_batch(module: _BatchNorm) -> bool:
    return module.training or module.running_mean is None
