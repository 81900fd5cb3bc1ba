"""A short run of what `make soak` does for an hour."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import soak
from soak import Held


def held(memory: list[float]) -> list[Held]:
    return [Held(one, 5, 1) for one in memory]


def test_memory_that_grows_with_each_audit_is_told_from_one_large_step():
    warm = [0.0] * soak.WARM_UP
    assert soak.growth(held(warm + [100.0 * number for number in range(20)])) == 100
    assert soak.growth(held(warm + [0.0] * 10 + [5000.0] * 3)) == 0
    assert soak.growth(held(warm)) == 0


def test_a_process_that_outlives_its_leader_is_seen():
    sleeping = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0); sys.exit()"
    with subprocess.Popen([sys.executable, "-c", sleeping], stdin=subprocess.PIPE, start_new_session=True) as leader:
        leader.wait()
        assert len(soak.outlived(leader.pid, patience=0.0)) == 1


def test_half_a_file_and_a_damaged_store_are_seen(tmp_path: Path):
    assert soak.left_over(tmp_path) == []
    store = soak.FolderStore.create(tmp_path)
    assert store.runs() == soak.left_over(tmp_path) == []
    (tmp_path / ".index.html.0123").write_text("half")
    assert soak.left_over(tmp_path) == ["half a file .index.html.0123"]


@pytest.mark.slow
def test_audits_in_a_loop_that_are_stopped_at_random_leave_nothing_and_resume():
    found = soak.soak(60.0, seed=1, audits=soak.WARM_UP + 10, stops=1)
    assert soak.sound(found), found
    assert found[0]["audits"] == soak.WARM_UP + 10
    assert found[1]["stops"] >= 1
