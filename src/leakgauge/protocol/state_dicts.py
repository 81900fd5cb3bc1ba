"""State dicts as people have them: names behind wrappers, memory that is shared, layers that did not move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leakgauge.errors import InvalidUpdate
from leakgauge.types import ParamTree

_WRAPPERS = frozenset(
    {"module", "_orig_mod", "_module", "_fsdp_wrapped_module", "normalised", "named_input", "default"}
)
"""What DataParallel, torch.compile, Opacus, FSDP, `Normalised` and `NamedInput` put into the names of the parameters
they wrap, and the name of an adapter, which saved adapters leave out."""

_CLONE = "keep {name: tensor.clone() for name, tensor in model.state_dict().items()} before training"


def as_tensors(given: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors of a dict of tensors or numpy arrays, as frameworks without torch pass them on; memory stays shared.

    >>> as_tensors({"weight": np.zeros((2, 3), "float32")})["weight"].shape
    torch.Size([2, 3])
    """
    made = {}
    for name, value in given.items():
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fiub":
            value = torch.from_numpy(np.asarray(value).astype(value.dtype.newbyteorder("="), copy=False))
        if not isinstance(value, Tensor):
            kind = f"{type(value).__name__}" + (f" of {value.dtype}" if isinstance(value, np.ndarray) else "")
            raise InvalidUpdate(f"The weights hold a {kind} under {name!r}; pass tensors or arrays of numbers.")
        made[name] = value
    return made


def plus(before: ParamTree, change: ParamTree) -> dict[str, Tensor]:
    """The weights after a change, of what changed."""
    change = rename(change, before)
    if extra := [name for name in change if name not in before]:
        raise InvalidUpdate(f"The weights before training lack {some(extra)}; pass both of one and the same model.")
    if unlike := [name for name in change if change[name].shape != before[name].shape]:
        raise InvalidUpdate(f"The change of {some(unlike)} has another shape than the weights; pass both of one model.")
    return {name: before[name] + moved for name, moved in change.items()}


def plain_name(name: str) -> str:
    """The name without the wrappers it lies behind.

    >>> plain_name("module.encoder._orig_mod.weight")
    'encoder.weight'
    """
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def rename(given: ParamTree, expected: Iterable[str]) -> dict[str, Tensor]:
    """The given tensors under the names expected of them, where they differ by wrappers alone; others keep theirs."""
    wanted = {plain_name(name): name for name in expected}
    exact = set(wanted.values())
    renamed = {name if name in exact else wanted.get(plain_name(name), name): tensor for name, tensor in given.items()}
    return renamed if len(renamed) == len(given) else dict(given)  # no two tensors get one name


def match(given: ParamTree, expected: Mapping[str, Tensor], *, what: str) -> dict[str, Tensor]:
    """The given tensors under the expected names, each of the expected shape and type."""
    if missing := [name for name in expected if name not in given]:
        raise InvalidUpdate(
            f"The {what} lacks {some(missing)}, which the model has; record every parameter, or let the factory build "
            "the model as the client had it, with requires_grad_(False) on what it did not train."
        )
    for name, tensor in expected.items():
        if given[name].shape != tensor.shape:
            raise InvalidUpdate(
                f"{name!r} has shape {tuple(given[name].shape)} in the {what} but {tuple(tensor.shape)} in the model; "
                "build the model with the classes and sizes it was trained with."
            )
        if tensor.is_floating_point() and not given[name].is_floating_point():
            raise InvalidUpdate(
                f"{name!r} holds whole numbers ({str(given[name].dtype).removeprefix('torch.')}) in the {what}; "
                "record it as the floats it stands for."
            )
    return {name: given[name].to(tensor.dtype) for name, tensor in expected.items()}


def difference(before: ParamTree, after: ParamTree) -> dict[str, Tensor]:
    """Before minus after, of floats in float32 at least; counters, which say how often a layer was trained, as well.

    Of what came back: a client that sends an adapter or a head alone leaves the rest out.
    """
    after = rename(after, before)
    if extra := [name for name in after if name not in before]:
        raise InvalidUpdate(f"The weights before training lack {some(extra)}; pass both complete state dicts.")
    before = {name: tensor for name, tensor in before.items() if name in after}
    if unlike := [name for name in before if before[name].shape != after[name].shape]:
        raise InvalidUpdate(
            f"The weights before and after training differ in the shape of {some(unlike)}; "
            "pass those of one and the same model."
        )
    floats = [name for name, tensor in before.items() if tensor.is_floating_point()]
    if not floats:
        raise InvalidUpdate("The weights hold no floating-point tensor; pass those that the client trained.")
    if shared := [name for name in floats if _shares_memory(before[name], after[name])]:
        raise InvalidUpdate(
            f"The weights before training share the memory of {some(shared)} with those after it, so that no "
            f"difference is left; {_CLONE}."
        )
    moved = {name: _wide(tensor) - _wide(after[name]).to(tensor.device) for name, tensor in before.items()}
    check_update({name: moved[name] for name in floats})
    return moved


def check_update(update: ParamTree) -> None:
    """Refuse what no client sends: nothing at all, one number throughout, or what is not a number."""
    for name, tensor in update.items():
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidUpdate(
                f"The update holds NaN or infinite values in {name!r}; record it from a stable training step."
            )
    filled = [tensor for tensor in update.values() if tensor.numel()]
    low, high = min(float(tensor.min()) for tensor in filled), max(float(tensor.max()) for tensor in filled)
    if low == high == 0:
        raise InvalidUpdate(
            "The update is zero in every entry, as when the weights before training were not cloned (state_dict() "
            f"shares the memory of the model); {_CLONE}."
        )
    if low == high and sum(tensor.numel() for tensor in filled) > 1:
        raise InvalidUpdate(
            f"The update is {low:.6g} in every entry, which no client computes; record the gradient, or the weights "
            "before and after training."
        )


def still(update: ParamTree) -> tuple[str, ...]:
    """The tensors that did not move at all."""
    return tuple(name for name, tensor in update.items() if not bool(tensor.any()))


def some(names: list[str]) -> str:
    """The first name, and how many more there are.

    >>> some(["a", "b", "c"])
    "'a' and 2 more"
    """
    return repr(names[0]) + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _shares_memory(one: Tensor, other: Tensor) -> bool:
    return one.numel() > 0 and one.device == other.device and one.data_ptr() == other.data_ptr()


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor
