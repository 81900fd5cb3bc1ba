"""The layers of modules without parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from leakgauge.attacks.matching.engine.layers import Layer, LinearMap, MaxPool, Reshaped
from leakgauge.attacks.matching.engine.layers.activations import SMOOTH, smooth_by_autograd
from leakgauge.errors import UnsupportedModel


def unknown(why: str) -> UnsupportedModel:
    return UnsupportedModel(f"The tangent sweeps do not know this model ({why.rstrip('.')}); use DoubleBackward().")


def apply_first(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], x: Tensor) -> Any:
    """The function of ``x`` first; bound by ``partial``, it can be copied and compared."""
    return function(x, *args, **kwargs)


def as_is(x: Tensor) -> Tensor:
    return x


def module_layer(module: nn.Module) -> Layer | None:
    """The layer of a module without parameters."""
    if isinstance(module, nn.Sigmoid | nn.Tanh):
        return SMOOTH["sigmoid" if isinstance(module, nn.Sigmoid) else "tanh"]
    if isinstance(module, nn.GELU) and module.approximate == "none":
        return SMOOTH["gelu"]
    if isinstance(module, nn.GELU | nn.SiLU | nn.ELU | nn.Softplus | nn.CELU | nn.SELU | nn.Mish):
        return smooth_by_autograd(_out_of_place(module))
    if isinstance(module, nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d) and not module.return_indices:
        options = (module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode)
        spatial = int(type(module).__name__[-2])
        pool = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[spatial - 1]
        return MaxPool(partial(apply_first, pool, options, {"return_indices": True}), spatial)
    if isinstance(module, nn.AdaptiveMaxPool1d | nn.AdaptiveMaxPool2d) and not module.return_indices:
        flat = isinstance(module, nn.AdaptiveMaxPool1d)
        adaptive = functional.adaptive_max_pool1d if flat else functional.adaptive_max_pool2d
        size = (module.output_size,)
        return MaxPool(partial(apply_first, adaptive, size, {"return_indices": True}), 1 if flat else 2)
    if isinstance(module, nn.Flatten | nn.Unflatten):
        return Reshaped(module)
    if isinstance(module, nn.Identity) or (isinstance(module, nn.modules.dropout._DropoutNd) and not module.training):
        return Reshaped(as_is)
    linear = (
        nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
        nn.ZeroPad2d, nn.CircularPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.PixelShuffle, nn.PixelUnshuffle,
    )  # fmt: skip
    return LinearMap(module) if isinstance(module, linear) else None


def _out_of_place(module: nn.Module) -> Callable[[Tensor], Tensor]:
    if getattr(module, "inplace", False):
        raise unknown(f"{type(module).__name__} in place")
    return module
