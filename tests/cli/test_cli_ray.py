"""Every command that attacks, on the cores of a Ray cluster that is there already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, os, sys
import ray
from ray.cluster_utils import Cluster
from leakgauge.audit.executors import in_process, processes
from leakgauge.cli import main

def run(*words):
    sys.stdout.flush()
    try:
        main([*words, "--json"])
    except SystemExit as ended:
        assert not ended.code, (words, ended.code)

def here(*arguments, **options):
    raise AssertionError("a case ran in the driver")

commands = json.loads(sys.argv[1])
for name, words in commands.items():
    if name != "reproduce":  # whose budget is of seconds, so that no two runs agree
        run(*words, "--jobs", "1", "--out", f"{name}-here")
in_process.run_safely = here
cluster = Cluster()
cluster.add_node(num_cpus=1)
os.environ["RAY_ADDRESS"] = cluster.address  # or "auto" may find the cluster of a test that runs beside this one
for number, (name, words) in enumerate(commands.items()):
    run(*words, "--ray", cluster.address if number % 2 else "auto", "--out", f"{name}-ray")
    ray.shutdown()
cluster.shutdown()
"""

PLAN = {
    "dataset": "digits",
    "model": "mlp:hidden=(6,)",
    "train_steps": 2,
    "defences": ["none", "pruning:keep=0.5"],
    "attacks": ["quasi_newton"],
    "threat_models": ["strongest"],
    "batch_sizes": [1],
    "steps": 3,
    "distractors": 20,
}


@pytest.mark.slow
def test_on_a_cluster_every_command_that_attacks_finds_what_it_finds_here_and_runs_no_case_in_the_driver(
    tmp_path: Path,
):
    pytest.importorskip("ray", reason="comes with the extra [ray]")
    grid = tmp_path / "grid.json"
    grid.write_text(json.dumps({**PLAN, "nulls": 1}))
    (tmp_path / "audit.json").write_text(json.dumps(_single(PLAN)))
    (tmp_path / "tradeoff.json").write_text(json.dumps({**PLAN, "images": 1, "training_steps": 2, "unaware": None}))
    commands = {
        "audit": ["audit", "audit.json"],
        "sweep": ["sweep", "grid.json"],
        "tradeoff": ["tradeoff", "tradeoff.json"],
        "reproduce": ["reproduce", "geiping2020/figure4", "--images", "1", "--seconds", "0.05"],
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(commands)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(said) == 7
    for here, there in zip(said[:3], said[3:6], strict=True):
        assert scores(there) == scores(here)
    assert all(row["ours"] for row in said[6]["rows"])


def _single(plan: dict) -> dict:
    plurals = {"threat_models": "threat_model", "batch_sizes": "batch_size"}
    return {plurals.get(key, key): value[0] if key in plurals else value for key, value in plan.items()}


def scores(said: dict) -> list:
    """The rows without how long they took."""
    return [without_time(row) for row in said["rows"]]


def without_time(value):
    if isinstance(value, dict):
        return {key: without_time(one) for key, one in value.items() if key != "overhead" and "seconds" not in key}
    return [without_time(one) for one in value] if isinstance(value, list) else value
