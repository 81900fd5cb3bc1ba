"""Why a user's model fails on an input, in words that name the layer and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from leakgauge.factories import cause

_METHODS = {torch.float32: "float", torch.float64: "double", torch.float16: "half", torch.bfloat16: "bfloat16"}
"""By which a module is converted."""


class Running(NamedTuple):
    """A layer at work: its name, itself, and the first tensor it was given."""

    name: str
    layer: nn.Module
    given: Tensor | None


@contextmanager
def noting_layers(module: nn.Module) -> Iterator[list[Running]]:
    """The layers that run at the moment, the innermost last; after a failure, those that did not come to their end."""
    running: list[Running] = []

    def enter(name: str) -> Callable[..., None]:
        def note(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            tensors = (one for one in (*args, *kwargs.values()) if isinstance(one, Tensor))
            running.append(Running(name, layer, next(tensors, None)))

        return note

    def leave(*_: Any) -> None:
        running.pop()

    handles = []
    for name, layer in module.named_modules():
        handles.append(layer.register_forward_pre_hook(enter(name), prepend=True, with_kwargs=True))
        handles.append(layer.register_forward_hook(leave))
    try:
        yield running
    finally:
        for handle in handles:
            handle.remove()


def explain_failure(error: Exception, running: list[Running]) -> str:
    """What went wrong and in which layer, then a semicolon and what to do."""
    innermost = next((one for one in reversed(running) if one.name), None)
    if innermost is None:
        return f"{cause(error).rstrip('.')}; {_whole_model(error)}"
    where = f"the layer {innermost.name!r} ({type(innermost.layer).__name__})"
    known = None if innermost.given is None else _mismatch(innermost.layer, innermost.given)
    if known is not None:
        return f"{where} {known}"
    if "more than 1 value per channel" in str(error):
        return (
            f"{where} normalises by the batch, which gives it one value per channel; "
            "use a batch of two or more, or the mode eval"
        )
    return f"in {where}: {cause(error).rstrip('.')}; check the size of the inputs and this layer"


def _whole_model(error: Exception) -> str:
    if isinstance(error, TypeError) and "argument" in str(error):
        return "hand the inputs to one argument by leakgauge.NamedInput(model, name), the others beside it"
    if isinstance(error, IndexError | KeyError | TypeError | AttributeError) or "unpack" in str(error):
        return (
            "check the forward of the model; one that takes a dict is wrapped as leakgauge.NamedInput(model, name, "
            "'dict')"
        )
    return "check the size of the inputs and the forward of the model"


def _mismatch(layer: nn.Module, given: Tensor) -> str | None:
    """How what a layer was given differs from what it was built for."""
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and given.is_floating_point():
        return (
            "looks up whole numbers and got pixels or values; LeakGauge audits models of images and of rows of values"
        )
    weight = next(layer.parameters(recurse=False), None)
    if weight is not None and given.is_floating_point() and weight.dtype != given.dtype:
        convert = _METHODS.get(given.dtype, "float")
        return f"computes in {_short(weight)} and got {_short(given)}; use model.{convert}(), or convert the inputs"
    if isinstance(layer, _ConvNd):
        axis = given.ndim - len(layer.kernel_size) - 1
        got = given.shape[axis] if axis >= 0 else None
        if got is not None and got != layer.in_channels:
            return (
                f"takes {_count(layer.in_channels, 'channel')} and got {got}; give inputs with as many, or build the "
                f"model for {got}"
            )
    if isinstance(layer, nn.Linear) and given.ndim and given.shape[-1] != layer.in_features:
        return (
            f"takes {_count(layer.in_features, 'feature')} and got {given.shape[-1]}: the model was built for inputs "
            f"of another size; give that size, or let in_features be {given.shape[-1]}"
        )
    if isinstance(layer, _NormBase) and given.ndim > 1 and given.shape[1] != layer.num_features:
        return (
            f"takes {_count(layer.num_features, 'channel')} and got {given.shape[1]}; give inputs of the size the "
            "model was built for"
        )
    if isinstance(layer, nn.LayerNorm):
        wanted, got_shape = tuple(layer.normalized_shape), tuple(given.shape[-len(layer.normalized_shape) :])
        if wanted != got_shape:
            return f"takes {wanted} and got {got_shape}; give inputs of the size the model was built for"
    return None


def _short(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
