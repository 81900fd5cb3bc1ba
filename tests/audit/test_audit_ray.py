"""A real Ray cluster of two nodes, of which a worker and then a node are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leakgauge.audit.executors import executor_for
from leakgauge.audit.store import MemoryStore
from leakgauge.errors import InvalidCase

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "executors.py"


@pytest.mark.slow
def test_after_a_worker_and_a_node_are_killed_all_cases_are_done_and_equal() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--parts", "faults"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))["ray_faults"]
    assert found["killed"] == ["worker", "node"]
    assert found["done"] == found["cases"] == 24
    assert found["equal"] is True
    assert found["actors_left"] == 0


def test_without_ray_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidCase, match=r"pip install 'leakgauge\[ray\]'"):
        list(executor_for(None, "auto").run([], {}, MemoryStore()))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "127.0.0.1:99999999"])
def test_an_address_that_nobody_listens_at_is_refused_at_once_and_in_one_sentence(address: str) -> None:
    pytest.importorskip("ray", reason="comes with the extra [ray]")
    with pytest.raises(InvalidCase, match=r"There is no Ray cluster at .*; start one with") as refusal:
        list(executor_for(None, address).run([], {}, MemoryStore()))
    assert "\n" not in str(refusal.value)
