"""Running a model once, on tensors without values, to write down every operation it performs."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.second_derivatives import uncompiled
from leakgauge.types import ModelState


def unknown(why: str) -> UnsupportedModel:
    return UnsupportedModel(f"The tangent sweeps do not know this model ({why.rstrip('.')}); use DoubleBackward().")


Span = tuple[str, set[str]]
"""The name of a layer, and of the operations recorded while it ran."""


class RecordedNetwork(NamedTuple):
    """The operations of one forward pass in order, in which all shapes are numbers and all control flow is decided."""

    graph: fx.GraphModule
    names: tuple[str, ...]
    """Of the tensors of the state, in the order of the placeholders that follow the images'."""
    layers: dict[fx.Node, str]
    """The innermost module each operation belongs to, as users know it."""
    structure: Any
    """How the model's output is made of the tensors the graph returns."""


def record(learner: Learner, state: ModelState, images: Tensor) -> RecordedNetwork:
    """The model in its learner's mode on inputs like ``images``; a model whose flow depends on values is refused."""
    # A copy, as layers that keep their weights elsewhere too (LSTM) would hold on to what they ran with.
    learner = replace(learner, module=copy.deepcopy(learner.module))
    tensors = {**state.params, **state.buffers}
    names = tuple(tensors)
    structures: list[Any] = []
    spans: list[Span] = []

    def run(images: Tensor, *leaves: Tensor) -> list[Any]:
        given = dict(zip(names, leaves, strict=True))
        params = {name: given[name] for name in state.params}
        with _noting_layers(learner.module, spans):
            output = learner.logits(params, {name: given[name] for name in state.buffers}, images)
        parts, structure = pytree.tree_flatten(output)
        structures.append(structure)
        return parts

    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        with torch.enable_grad(), uncompiled(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tracer: Callable[..., fx.GraphModule] = make_fx(
                run, pre_dispatch=True, tracing_mode="fake", _allow_non_fake_inputs=True
            )
            graph = tracer(images.detach(), *(tensor.detach() for tensor in tensors.values()))
    except UnsupportedModel:
        raise
    except Exception as error:  # a user's module may fail to run on tensors without values in any way
        place = f", in {spans[-1][0]}" if spans and spans[-1][0] else ""
        raise unknown(f"it cannot be traced{place}: {next(iter(str(error).splitlines()), repr(error))}") from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    return RecordedNetwork(graph, names, _innermost(graph, spans), structures[-1])


@contextmanager
def _noting_layers(module: nn.Module, spans: list[Span]) -> Iterator[None]:
    """Note which operations are recorded while each layer runs."""
    begun: list[tuple[str, set[str]]] = []

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: begun.append((name, _recorded()))

    def leave(*_: Any) -> None:
        name, before = begun.pop()
        spans.append((name, _recorded() - before))

    handles = []
    for name, layer in module.named_modules():
        handles.append(layer.register_forward_pre_hook(enter(name), prepend=True))
        handles.append(layer.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        if begun:
            spans.append((begun[-1][0], set()))


def _recorded() -> set[str]:
    mode = torch.fx.experimental.proxy_tensor.get_proxy_mode()
    return set() if mode is None else {node.name for node in mode.tracer.graph.nodes}


def _innermost(graph: fx.GraphModule, spans: list[Span]) -> dict[fx.Node, str]:
    found: dict[str, str] = {}
    for name, recorded in spans:  # an inner layer ends before the one around it
        for node in recorded:
            found.setdefault(node, name)
    return {node: found.get(node.name, "") for node in graph.graph.nodes}
