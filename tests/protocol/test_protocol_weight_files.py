"""The same weights from every kind of file, and never anything that could run."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from leakgauge.errors import InvalidFile, InvalidUpdate
from leakgauge.files import write_tensors
from leakgauge.protocol.recording import RecordedRound, read_round, write_round
from leakgauge.protocol.weight_files import read_weights

WEIGHTS = {
    name: tensor.detach() for name, tensor in nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).state_dict().items()
}
ARRAYS = {name: tensor.numpy() for name, tensor in WEIGHTS.items()}


def save_torch(content: Any) -> Callable[[Path], None]:
    return lambda path: torch.save(content, path)


WAYS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "safetensors": ("w.safetensors", lambda path: write_tensors(path, WEIGHTS)),
    "state dict": ("w.pt", save_torch(WEIGHTS)),
    "checkpoint": ("w.pth", save_torch({"epoch": 3, "state_dict": WEIGHTS})),
    "as NVFlare keeps it": ("w.pt", save_torch({"model": WEIGHTS, "train_conf": {"train": {"model": "net"}}})),
    "dict of arrays": ("w.npz", lambda path: np.savez(path, **ARRAYS)),
    "as OpenFL names it": ("w.npz", lambda path: np.savez(path, **ARRAYS, __opt_state_needed=np.array("false"))),
    "list of arrays": ("w.npz", lambda path: np.savez(path, *ARRAYS.values())),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_kind_of_file_gives_the_same_weights(tmp_path: Path, way: str) -> None:
    name, save = WAYS[way]
    save(tmp_path / name)
    found = read_weights(tmp_path / name, list(WEIGHTS) if way == "list of arrays" else None)
    assert {name: (one.dtype, one.tolist()) for name, one in found.items()} == {
        name: (one.dtype, one.tolist()) for name, one in WEIGHTS.items()
    }


class Evil:
    """Whose reading would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["w.pt", "w.npz", "w.safetensors", "w.pkl"])
def test_nothing_that_could_run_is_read(tmp_path: Path, name: str) -> None:
    trap = tmp_path / "ran"
    content = {"weight": Evil(trap)}
    if name == "w.pt":
        torch.save(content, tmp_path / name)
    elif name == "w.npz":
        np.savez(tmp_path / name, weight=np.array([Evil(trap)], dtype=object))
    else:
        (tmp_path / name).write_bytes(pickle.dumps(content))
    with pytest.raises(InvalidFile) as caught:
        read_weights(tmp_path / name)
    assert str(caught.value).endswith(".")
    assert not trap.exists()


def test_a_list_of_arrays_needs_a_model_of_as_many_entries(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", *ARRAYS.values())
    with pytest.raises(InvalidUpdate, match="without names; give --model"):
        read_weights(tmp_path / "w.npz")
    with pytest.raises(InvalidUpdate, match=r"7 arrays, but .* has 2 entries"):
        read_weights(tmp_path / "w.npz", ["a", "b"])


def test_a_round_between_arrays_is_that_between_tensors(tmp_path: Path) -> None:
    before = {"module.weight": torch.randn(2, 3), "module.bias": torch.randn(2)}
    after = {"weight": before["module.weight"] - 0.5, "bias": before["module.bias"] + 0.25}
    made = RecordedRound.between(before, after, (1, 1, 3))
    arrays = RecordedRound.between(
        {name: one.numpy() for name, one in before.items()},
        {name: one.numpy() for name, one in after.items()},
        (1, 1, 3),
    )
    for name in before:
        assert torch.equal(made.update[name], arrays.update[name])
    assert torch.allclose(made.update["module.weight"], torch.full((2, 3), 0.5))
    write_round(tmp_path / "r.safetensors", arrays)
    again: Tensor = read_round(tmp_path / "r.safetensors").update["module.bias"]
    assert torch.allclose(again, torch.full((2,), -0.25))
    with pytest.raises(InvalidFile, match="recorded round already"):
        read_weights(tmp_path / "r.safetensors")
    with pytest.raises(InvalidUpdate, match="share the memory"):
        RecordedRound.between(ARRAYS, ARRAYS, (1, 1, 3))
    with pytest.raises(InvalidUpdate, match="hold a list under 'weight'"):
        RecordedRound.between({"weight": [1.0]}, {"weight": [2.0]}, (1, 1, 3))
