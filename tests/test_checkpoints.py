"""Work that outlives its process: what was kept is gone on with, by the same work and by no other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from leakgauge.checkpoints import Resumable, run_kept
from leakgauge.errors import InvalidFile
from leakgauge.files import read_tensors
from leakgauge.progress import Progress, Tick, silent


class Counting(Resumable):
    def __init__(self, steps: int = 6) -> None:
        self._steps, self._done, self.made = steps, 0, 0

    @property
    def done(self) -> int:
        return self._done

    @property
    def steps(self) -> int:
        return self._steps

    def step(self) -> None:
        self._done += 1
        self.made += 1

    def snapshot(self) -> dict[str, Tensor]:
        return {"done": torch.tensor(self._done)}

    def restore(self, snapshot: Mapping[str, Tensor]) -> None:
        if "done" not in snapshot:
            raise InvalidFile("another's")
        self._done = int(snapshot["done"])


def run(path: Path, progress: Progress = silent, every: float = 30.0, **described: str) -> Counting:
    work = Counting()
    run_kept(work, path / "kept" / "work.safetensors", described, progress, every)
    return work


def stop_at(step: int) -> Progress:
    def progress(tick: Tick) -> None:
        assert tick.fraction == tick.step / 6
        if tick.step == step:
            raise KeyboardInterrupt

    return progress


def test_stopped_work_goes_on_where_it_was_and_finished_work_is_not_done_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stop_at(4), of="this")
    assert run(tmp_path, of="this").made == 2
    assert run(tmp_path, of="this").made == 0


def test_other_work_and_damaged_files_are_begun_anew(tmp_path: Path) -> None:
    run(tmp_path, of="this")
    assert run(tmp_path, of="that").made == 6
    (tmp_path / "kept" / "work.safetensors").write_bytes(b"nonsense")
    assert run(tmp_path, of="this").made == 6


def test_what_a_killed_process_would_lose_is_kept_on_the_way(tmp_path: Path) -> None:
    seen: list[int] = []
    file = tmp_path / "kept" / "work.safetensors"
    run(tmp_path, lambda tick: seen.append(int(read_tensors(file)[0]["done"])), every=0.0)
    assert seen == list(range(1, 7))
    assert list(file.parent.iterdir()) == [file]
