"""Operations that torch differentiates once, by equal compositions of those it differentiates twice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.backends import cuda, cudnn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint

_KERNELS = (
    (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
    (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
    (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
    (cuda.math_sdp_enabled, cuda.enable_math_sdp),
)
"""Of attention; the last alone is made of operations with two derivatives."""


@contextmanager
def composed() -> Iterator[None]:
    """While the block runs, what a model calls has two derivatives wherever a composition of it is known here."""
    kernels, fused, recurrent = [enabled() for enabled, _ in _KERNELS], torch.backends.mha.get_fastpath_enabled(), None
    try:
        for (_, enable), allowed in zip(_KERNELS, (False, False, False, True), strict=True):
            enable(allowed)
        torch.backends.mha.set_fastpath_enabled(False)
        recurrent = cudnn.enabled
        if recurrent:
            cudnn.enabled = False  # its LSTM and GRU have one derivative; the composed cells have all
        with uncompiled(), _Composed():
            yield
    finally:
        for (_, enable), before in zip(_KERNELS, kernels, strict=True):
            enable(before)
        torch.backends.mha.set_fastpath_enabled(fused)
        if recurrent:
            cudnn.enabled = True


def uncompiled() -> Any:
    """While the block runs, torch.compile leaves what it would compile as it is written."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


@contextmanager
def uncheckpointed() -> Iterator[None]:
    """While the block runs, checkpointed blocks keep what they compute.

    They would compute it again in the backward pass, where the model no longer holds the parameters it was called with.
    """
    held = checkpoint.CheckpointFunction, checkpoint._checkpoint_without_reentrant_generator
    try:
        checkpoint.CheckpointFunction = _Plain  # type: ignore[misc, assignment]
        checkpoint._checkpoint_without_reentrant_generator = _nothing_noted
        yield
    finally:
        checkpoint.CheckpointFunction, checkpoint._checkpoint_without_reentrant_generator = held  # type: ignore[misc]


class _Plain:
    @staticmethod
    def apply(function: Callable[..., Any], preserve: object, *args: Any) -> Any:
        del preserve
        return function(*args)


def _nothing_noted(*args: object, **kwargs: object) -> Iterator[None]:
    del args, kwargs
    yield


def _hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    return functional.relu6(input + 3) / 6


def _distances(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:  # noqa: ARG001
    return torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), ord=p, dim=-1)


_COMPOSITIONS: Mapping[Any, Callable[..., Tensor]] = {
    functional.hardsigmoid: _hardsigmoid,
    torch.cdist: _distances,
}


class _Composed(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        return _COMPOSITIONS.get(func, func)(*args, **(kwargs or {}))
