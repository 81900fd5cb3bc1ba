"""Drivers and workers killed at any moment: every case is done once, and as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from leakgauge.audit.executors import InProcess
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.store import FolderStore

PLAN = AuditPlan(
    dataset="digits",
    model="mlp:hidden=[8]",
    train_steps=0,
    batch_size=1,
    distractors=3,
    nulls=2,
    rounds=2,
    attacks=("quasi_newton", "quasi_newton:tv_weight=0.01"),
    defences=("none", "pruning:keep=0.5", "clipping:max_norm=1"),
    steps=60,
)

DRIVER = f"""
import sys
from pathlib import Path
from leakgauge.audit.executors import Processes
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.store import FolderStore
import torch
if __name__ == "__main__":
    torch.set_num_threads(1)
    prepared = prepare({PLAN!r})
    print(len(prepared.cases), flush=True)
    for _ in Processes(2, 0.0).run(prepared.cases, prepared.metrics, FolderStore.create(Path(sys.argv[1]))):
        pass
    print("done", flush=True)
"""


def children(process: int) -> list[int]:
    """The workers of a driver; others, such as what tracks shared memory, are no workers."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(one) for one in listed if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    pause = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if true():
            return True
        pause.wait(0.02)
    return False


def finished(folder: Path) -> int:
    if not (folder / "audit.sqlite").is_file():
        return 0
    with closing(sqlite3.connect(folder / "audit.sqlite", timeout=30)) as connection:
        try:
            return int(connection.execute("SELECT COUNT(*) FROM records").fetchone()[0])
        except sqlite3.OperationalError:  # the tables are being made
            return 0


def start(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "24\n"
    return driver


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds processes in /proc")
def test_after_any_kills_every_case_is_there_once_and_as_in_an_undisturbed_run(tmp_path: Path) -> None:
    folder, chance = tmp_path / "disturbed", random.Random(0)
    for goal in (4, 9, 15):
        driver = start(folder)
        assert wait_until(lambda: len(children(driver.pid)) == 2)  # noqa: B023
        wait_until(lambda: finished(folder) >= goal - chance.randint(1, 3))  # noqa: B023
        os.kill(chance.choice(children(driver.pid)), signal.SIGKILL)
        assert wait_until(lambda: finished(folder) >= goal)  # noqa: B023
        orphans = children(driver.pid)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        driver.stdout.close()  # type: ignore[union-attr]
        assert wait_until(lambda: not any(map(alive, orphans)), 20.0), "a worker outlived its driver"  # noqa: B023
        assert finished(folder) < 24
    driver = start(folder)
    assert driver.communicate()[0] == "done\n"
    assert driver.returncode == 0
    assert finished(folder) == 24
    torch.set_num_threads(1)
    prepared, calm = prepare(PLAN), FolderStore.create(tmp_path / "calm")
    list(InProcess().run(prepared.cases, prepared.metrics, calm))
    disturbed = FolderStore.open(folder)
    for case in prepared.cases:
        records = [store.get(case.key) for store in (calm, disturbed)]
        first, second = [replace(one, seconds=0.0, cpu_seconds=0.0).to_json() for one in records if one is not None]
        assert first == second
    assert not (folder / "snapshots").exists()
