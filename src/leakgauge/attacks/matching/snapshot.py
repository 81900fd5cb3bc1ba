"""The state of a search as named tensors, and back."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from leakgauge.attacks.base import Snapshot


def write_state(value: Any, prefix: str = "") -> dict[str, Tensor]:
    """The tensors and numbers of a dataclass, however deep, by name."""
    found: dict[str, Tensor] = {}
    for entry in fields(value):
        part, name = getattr(value, entry.name), f"{prefix}{entry.name}"
        if isinstance(part, Tensor):
            found[name] = part
        elif isinstance(part, int):
            found[name] = torch.tensor(part)
        elif is_dataclass(part):
            found |= write_state(part, f"{name}.")
    return found


def read_state(like: Any, tensors: Snapshot, prefix: str = "") -> Any:
    """A copy of the dataclass with its tensors and numbers from a snapshot."""
    changes: dict[str, Any] = {}
    for entry in fields(like):
        part, name = getattr(like, entry.name), f"{prefix}{entry.name}"
        if isinstance(part, Tensor):
            changes[entry.name] = tensors[name].to(part).clone()
        elif isinstance(part, int):
            changes[entry.name] = int(tensors[name])
        elif is_dataclass(part):
            changes[entry.name] = read_state(part, tensors, f"{name}.")
    return replace(like, **changes)


def same_layout(kept: Snapshot, fresh: Snapshot, *, growing: str) -> bool:
    """The same names, types and sizes, save for the tensor that grows with the steps."""

    def describe(snapshot: Snapshot) -> dict[str, tuple[object, ...]]:
        return {
            name: (tensor.dtype, tensor.ndim, tensor.shape[1:] if name == growing else tensor.shape)
            for name, tensor in snapshot.items()
        }

    return describe(kept) == describe(fresh)
