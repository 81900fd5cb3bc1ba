"""Where the fully connected layers of a network are, what lies between one and the next, and how to undo it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call

from leakgauge.protocol.learner import Learner
from leakgauge.types import ModelState

Activation = Callable[[Tensor], Tensor]
"""An elementwise function of rows of features, in float64."""


class Site(NamedTuple):
    """A fully connected layer that runs once, on one row of features per image."""

    inputs: Tensor
    """What flowed into it, one row per image of the probe."""
    moves: bool
    """Whether its input depends on a trained parameter, and so changes from one local step to the next."""


def sites(learner: Learner, state: ModelState, images: Tensor) -> dict[str, Site]:
    """The layers y = W x + b whose update is that of a single x per image, in order of execution.

    Left out: a layer that runs twice or shares its weights (its update is a sum over several inputs), one that sees
    several rows per image, and subclasses that compute something else.
    """
    learner = learner.in_mode("eval")  # batch statistics would couple the images of the probe
    owners = Counter(id(p) for layer in learner.module.modules() for p in layer.parameters(recurse=False))
    seen: dict[str, list[Tensor]] = {}
    handles = [
        layer.register_forward_pre_hook(_note(name, seen), with_kwargs=True)
        for name, layer in learner.module.named_modules()
        if is_linear(layer) and all(owners[id(p)] == 1 for p in layer.parameters())
    ]
    try:
        with torch.enable_grad():
            params = {name: p.detach().requires_grad_() for name, p in state.params.items()}
            learner.logits(params, state.buffers, images)
    finally:
        for handle in handles:
            handle.remove()
    return {
        name: Site(calls[0].detach(), calls[0].requires_grad)
        for name, calls in seen.items()
        if len(calls) == 1 and calls[0].ndim == 2 and len(calls[0]) == len(images)
    }


def is_linear(layer: nn.Module) -> bool:
    """Whether a layer is y = W x + b; a subclass of ``nn.Linear`` with a forward of its own may be anything."""
    return isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward


@dataclass(frozen=True)
class Link:
    """The output of one fully connected layer reaches the loss only as ``activation``, through the layer ``to``."""

    to: str
    activation: Activation
    dropout: bool


def links(learner: Learner, state: ModelState) -> dict[str, Link]:
    """The elementwise steps from one fully connected layer to the next, by the name of the first.

    Read off a symbolic trace, so a skip connection, a branch or a second use of the layer's output gives no link; that
    the step acts on each feature alone is checked by running it. Empty where the forward pass cannot be traced.
    """
    module = learner.in_mode("eval").module
    try:
        graph = _Tracer().trace(module)
    except Exception:  # a user's own forward may branch on values or fail under tracing in any way
        return {}
    constant: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op != "placeholder" and all(source in constant for source in node.all_input_nodes):
            constant.add(node)
    found: dict[str, Link] = {}
    for node in graph.nodes:
        if (layer := _linear(module, node)) is None or (step := _step(module, node, constant)) is None:
            continue
        between, successor = step
        activation = _activation(module, state, node, between, constant, successor)
        if activation is not None and _acts_on_each_feature_alone(activation, layer.out_features, state.device):
            drops = any(_drops(module, one) for one in between)
            found[str(node.target)] = Link(str(successor.target), activation, drops)
    return found


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_linear(m) or super().is_leaf_module(m, module_qualified_name)


def _note(name: str, seen: dict[str, list[Tensor]]) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    return lambda _, args, kwargs: seen.setdefault(name, []).append(args[0] if args else kwargs["input"])


def _linear(module: nn.Module, node: fx.Node) -> nn.Linear | None:
    layer = module.get_submodule(str(node.target)) if node.op == "call_module" else None
    return layer if isinstance(layer, nn.Linear) and is_linear(layer) else None


def _step(module: nn.Module, start: fx.Node, constant: set[fx.Node]) -> tuple[list[fx.Node], fx.Node] | None:
    """The nodes between one linear layer and the next, if all that follows from the first leads into the second."""
    reached = {start}
    between: list[fx.Node] = []
    ends: list[fx.Node] = []
    for node in start.graph.nodes:
        sources = node.all_input_nodes
        if not any(source in reached for source in sources):
            continue
        if node.op == "output" or not all(source in reached or source in constant for source in sources):
            return None
        if _linear(module, node) is not None:
            ends.append(node)
        else:
            reached.add(node)
            between.append(node)
    return (between, ends[0]) if len(ends) == 1 else None


def _activation(
    module: nn.Module,
    state: ModelState,
    start: fx.Node,
    between: list[fx.Node],
    constant: set[fx.Node],
    successor: fx.Node,
) -> Activation | None:
    """The nodes between two layers as a function of its own, with the state the server sent, in float64."""
    wanted = set(between)  # all of them: a method that works in place has no reader
    for node in reversed(start.graph.nodes):
        if node in wanted:
            wanted.update(source for source in node.all_input_nodes if source in constant)
    graph = fx.Graph()
    copies = {start: graph.placeholder("features")}
    for node in start.graph.nodes:
        if node in wanted:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(copies[successor.all_input_nodes[0]])
    part = fx.GraphModule(module, graph)
    held: Mapping[str, Tensor] = {**state.params, **state.buffers}
    names = [name for name, _ in (*part.named_parameters(), *part.named_buffers())]
    if not all(name in held for name in names):  # the second name of a shared parameter
        return None
    tensors = {name: held[name].double() if held[name].is_floating_point() else held[name] for name in names}
    # A copy, because an activation may work in place.
    return lambda features: functional_call(part, tensors, (features.clone(),))


def _drops(module: nn.Module, node: fx.Node) -> bool:
    named = type(module.get_submodule(str(node.target))) if node.op == "call_module" else node.target
    return "dropout" in getattr(named, "__name__", str(named)).lower()


def _acts_on_each_feature_alone(activation: Activation, features: int, device: torch.device) -> bool:
    """Any two features differ in some bit of their number: shift those with it, and the others must not change."""
    number = torch.arange(features, device=device)
    bits = range(math.ceil(math.log2(features))) if features > 1 else range(0)
    shifted = [(number >> bit) % 2 == side for bit in bits for side in (0, 1)]
    masks = torch.stack([torch.zeros_like(number, dtype=torch.bool), *shifted])
    base = 0.5 + (number.double() * 1.7).sin().abs()
    for sign in (1.0, -1.0):  # a feature may be silent on one side of zero
        rows = sign * (base + 0.5 * masks)
        try:
            with torch.no_grad():
                out = activation(rows)
        except Exception:  # a layer that does not take rows of features
            return False
        if not isinstance(out, Tensor) or out.shape != rows.shape:
            return False
        if not torch.allclose(out[~masks], out[0].expand_as(out)[~masks], rtol=1e-9, atol=1e-12):
            return False
    return True


# Dense around zero, where activations bend, and out to the ends, where a second preimage may hide.
_GRID_POINTS, _GRID_REACH = 1025, 14.6
_HALVINGS = 100


def preimage(activation: Activation, values: Tensor) -> Tensor:
    """The y with activation(y) = value, feature by feature; NaN where there is none or more than one.

    A table over [-1e6, 1e6] counts the crossings and bisection finds the single one: everywhere for a strictly monotone
    activation, where the output is positive for ReLU, GELU and SiLU.

    >>> preimage(torch.nn.functional.gelu, torch.tensor([1.0, -0.1, 0.0], dtype=torch.float64)).round(decimals=6)
    tensor([1.1445,    nan,    nan], dtype=torch.float64)
    """
    grid = torch.linspace(-_GRID_REACH, _GRID_REACH, _GRID_POINTS, dtype=values.dtype, device=values.device).sinh()
    with torch.no_grad():
        table = activation(grid[:, None].repeat(1, len(values)))
        below, above = table < values, table > values
        hits = (table == values).sum(dim=0)
        once = (_changes(below) == 1) & (_changes(above) == 1) & (hits <= 1)
        rising = above[-1]
        before = torch.where(rising, below, above).sum(dim=0)
        left = grid[(before - 1).clamp(0, _GRID_POINTS - 1)]
        right = grid[(before + hits).clamp(0, _GRID_POINTS - 1)]
        for _ in range(_HALVINGS):
            middle = (left + right) / 2
            reached = activation(middle[None])[0]
            on = torch.where(rising, reached < values, reached > values)
            left, right = torch.where(on, middle, left), torch.where(on, right, middle)
    return torch.where(once, (left + right) / 2, torch.nan)


def slope(activation: Activation, at: Tensor) -> Tensor:
    """The derivative of an elementwise function, feature by feature."""
    with torch.enable_grad():
        at = at.detach().requires_grad_()
        (result,) = torch.autograd.grad(activation(at[None]).sum(), at, materialize_grads=True)
    return result


def _changes(flags: Tensor) -> Tensor:
    return (flags[1:] != flags[:-1]).sum(dim=0)
