"""Weights as frameworks leave them on disk: safetensors, torch's own files read without running anything, numpy's."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge.errors import InvalidFile, InvalidUpdate
from leakgauge.factories import cause
from leakgauge.files import check_unpacked, read_arrays, read_tensors
from leakgauge.protocol.state_dicts import as_tensors

_TORCH = (".pt", ".pth", ".ckpt", ".bin")
_AROUND = ("state_dict", "model_state_dict", "model", "weights", "params", "module")
"""What checkpoints call the weights they hold among other things."""
_UNNAMED = "arr_"
"""How numpy numbers arrays that were saved without names, as the lists of Flower are."""


def read_weights(path: Path, names: Sequence[str] | None = None) -> dict[str, Tensor]:
    """The named tensors of a file; ``names``, those of the model's state dict, are needed for a list of arrays.

    Nothing that could run is read: torch's files through its restricted reader, numpy's without objects.
    """
    if not path.is_file():
        raise InvalidFile(f"Cannot read {path}: there is no such file; check the path.")
    if path.suffix == ".npz":
        return _named(_read_npz(path), names, path)
    if path.suffix in _TORCH:
        return as_tensors(_weights_in(_read_torch(path), path))
    if path.suffix == ".safetensors":
        tensors, metadata = read_tensors(path)
        if metadata.get("format", "").startswith("leakgauge-round/"):
            raise InvalidFile(f"{path} is a recorded round already; attack it with `leakgauge invert`.")
        return tensors
    known = ", ".join((".safetensors", ".npz", *_TORCH))
    raise InvalidFile(f"{path} is of no kind that holds weights ({known}); save them as .safetensors or .npz.")


def _read_torch(path: Path) -> Any:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                check_unpacked(path, sum(one.file_size for one in archive.infolist()))
        return torch.load(path, map_location="cpu", weights_only=True)
    except InvalidFile:
        raise
    except Exception as error:  # what the restricted reader refuses, and a damaged file in a dozen ways
        raise InvalidFile(
            f"{path} holds more than tensors, which could run code when opened, or is damaged, so LeakGauge does not "
            "read it; save the state dict alone, with torch.save(model.state_dict(), path)."
        ) from error


def _weights_in(content: Any, path: Path) -> Mapping[str, Any]:
    """The state dict in what a file holds: the content itself, or what is in it under a usual name."""
    while isinstance(content, Mapping):
        if any(isinstance(value, Tensor) for value in content.values()):
            held = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
            if odd := [name for name, value in held.items() if not _is_plain(value)]:
                raise InvalidFile(f"{path} holds under {odd[0]!r} a tensor without values of its own; save plain ones.")
            return held
        content = next((content[name] for name in _AROUND if isinstance(content.get(name), Mapping)), None)
    raise InvalidFile(f"{path} holds no state dict; save one with torch.save(model.state_dict(), path).")


def _is_plain(tensor: Tensor) -> bool:
    """Whether it holds as many values as it declares, each for itself; what is spread out of one could fill memory."""
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def _read_npz(path: Path) -> dict[str, Any]:
    try:
        return read_arrays(path)
    except InvalidFile:
        raise
    except Exception as error:  # a damaged archive fails in a dozen ways
        raise InvalidFile(
            f"{path} is no .npz of plain arrays ({cause(error).rstrip('.')}); write it with "
            "numpy.savez(path, **arrays), without objects."
        ) from error


def _named(arrays: dict[str, Any], names: Sequence[str] | None, path: Path) -> dict[str, Tensor]:
    """Arrays by their names; those of a list in the order of the model's state dict."""
    if not arrays or not all(name.startswith(_UNNAMED) and name[len(_UNNAMED) :].isdigit() for name in arrays):
        return as_tensors({name: value for name, value in arrays.items() if not name.startswith("__")})
    if names is None:
        raise InvalidUpdate(
            f"{path} is a list of {len(arrays)} arrays without names; give --model, whose state dict has their order."
        )
    if len(arrays) != len(names):
        raise InvalidUpdate(
            f"{path} is a list of {len(arrays)} arrays, but the state dict of the model has {len(names)} entries; give "
            "the model that the list was taken from."
        )
    ordered = sorted(arrays, key=lambda name: int(name[len(_UNNAMED) :]))
    return as_tensors({name: arrays[one] for name, one in zip(names, ordered, strict=True)})
