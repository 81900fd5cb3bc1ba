"""How many threads a computation is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn

_LARGE = 1_000_000


def is_small(parameters: int) -> bool:
    """Whether one thread is best for a model of so many parameters."""
    return parameters < _LARGE


@contextmanager
def suitable_threads(parameters: int) -> Iterator[None]:
    """One thread for a model of fewer than a million parameters, all of torch's for a larger one.

    The operations of a small model are so short that threads mostly wait for each other, and on a busy machine they
    wait for the scheduler: measured, ten times slower than one. The rule depends on the model alone, so that the same
    case gives the same digits.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1 if is_small(parameters) else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def model_threads(model: nn.Module) -> AbstractContextManager[None]:
    """`suitable_threads` for a module."""
    return suitable_threads(sum(parameter.numel() for parameter in model.parameters()))
