"""A model without what training wrapped around it: DataParallel, torch.compile, Opacus, averaged weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from torch import nn
from torch.nn.parameter import is_lazy

from leakgauge.errors import InvalidCase

_WRAPPERS: Mapping[tuple[str, str], str] = {
    ("torch.nn.parallel.data_parallel", "DataParallel"): "module",
    ("torch.nn.parallel.distributed", "DistributedDataParallel"): "module",
    ("torch.optim.swa_utils", "AveragedModel"): "module",
    ("torch._dynamo.eval_frame", "OptimizedModule"): "_orig_mod",
    ("opacus.grad_sample.gsm_base", "AbstractGradSampleModule"): "_module",
    ("opacus.distributed", "DifferentiallyPrivateDistributedDataParallel"): "module",
}
"""Where each wrapper keeps its model; by name, so that none of them has to be installed."""


def bare_module(module: nn.Module) -> nn.Module:
    """The model itself, whose parameters have the names they had before it was wrapped; tensors are shared."""
    module = _unwrap(module)
    layers = list(module.modules())
    if not any(_inner(layer) for layer in layers) and not any(_watched(layer) for layer in layers):
        return module
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    bare = copy.deepcopy(module, shared)
    for layer in list(bare.modules()):
        for name, child in layer.named_children():
            layer._modules[name] = _unwrap(child)
    for layer in bare.modules():
        if _watched(layer):
            layer._forward_hooks.clear()
            layer._backward_hooks.clear()
    return bare


def check_trainable(module: nn.Module) -> None:
    """Refuse a model that has nothing to train, or not yet."""
    for name, layer in module.named_modules():
        if any(is_lazy(tensor) for tensor in (*layer.parameters(recurse=False), *layer.buffers(recurse=False))):
            raise InvalidCase(
                f"The layer {name!r} ({type(layer).__name__}) has no weights before its first input; run the model "
                "once on an input, where it is made."
            )
    if any(p.requires_grad for p in module.parameters()):
        return
    for name, layer in module.named_modules():
        if ".quantized." in type(layer).__module__:
            raise InvalidCase(
                f"The layer {name!r} is quantised, and no parameter of the model can be trained; give the model as it "
                "was before it was quantised."
            )
    raise InvalidCase("The model has no trainable parameter, so its update is empty; unfreeze at least one layer.")


def _unwrap(module: nn.Module) -> nn.Module:
    while (name := _inner(module)) is not None:
        module = module.get_submodule(name)
    return module


def _inner(module: nn.Module) -> str | None:
    """Where this module keeps the one it wraps, if it wraps one."""
    kinds = ((kind.__module__, kind.__name__) for kind in type(module).__mro__)
    return next((_WRAPPERS[kind] for kind in kinds if kind in _WRAPPERS), None)


def _watched(layer: nn.Module) -> bool:
    """Whether Opacus looks on, to take each example's gradient; it refuses to be differentiated."""
    return any(str(getattr(hook, "__module__", "")).startswith("opacus.") for hook in layer._forward_hooks.values())
