"""What running cases elsewhere costs and saves: the pool and a Ray cluster beside one process, and the store's listing.

    python benchmarks/executors.py --out benchmarks/results/executors.json
    python benchmarks/executors.py --faults          # a local Ray cluster of two nodes, of which one is killed

Equal cases of about --seconds each, by a fixed number of steps. The overhead is that of one worker of the pool over the
same cases in this process, from the moment the worker has started; the speed-up is that of two such workers over one.
The start of the workers, which import torch, is told apart. The load before each run stands beside it: on cores
that others use, both numbers are worse than they are.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from leakgauge.audit.case import Case
from leakgauge.audit.execute import PreparedAudit
from leakgauge.audit.executors import Executor, InProcess, RayCluster, cores
from leakgauge.audit.executors.base import Pack
from leakgauge.audit.executors.memory import MemoryLimit
from leakgauge.audit.executors.processes import ProcessCrew
from leakgauge.audit.executors.sharing import SharedWork
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.record import Pictures
from leakgauge.audit.store import FolderStore, MemoryStore
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.progress import Progress, silent
from leakgauge.version import VERSION

PLAN = AuditPlan(
    dataset="digits",
    model="mlp:hidden=[64]",
    train_steps=0,
    batch_size=2,
    rounds=6,
    nulls=6,
    distractors=3,
    attacks=("inverting_gradients",),
    defences=("none", "clipping:max_norm=1"),
    steps=60,
)


class Watched:
    """When the first case began."""

    def __init__(self) -> None:
        self.began: float | None = None

    def __call__(self, index: int, title: str, slot: int = 0) -> Progress:
        del index, title, slot
        self.began = self.began or time.monotonic()
        return silent


def prepared_for(seconds: float) -> PreparedAudit:
    """Cases whose steps take so many seconds here."""
    trial = prepare(PLAN)
    started = time.process_time()
    list(InProcess().run(trial.cases[:2], {}, MemoryStore()))
    each = (time.process_time() - started) / 2
    return prepare(replace(PLAN, steps=max(1, round((PLAN.steps or 1) * seconds / each))))


def measured(name: str, run: Any, watch: Watched) -> dict[str, Any]:
    """``run`` is the iterator of records."""
    load, started = os.getloadavg()[0], time.monotonic()
    records = list(run)
    ended = time.monotonic()
    began = watch.began or started
    work = sum(record.seconds for record in records)
    row = {
        "run": name,
        "cases": len(records),
        "load_before": round(load, 2),
        "start_seconds": round(began - started, 2),
    }
    row |= {"seconds": round(ended - began, 2), "seconds_of_cases": round(work, 2)}
    print(row, flush=True)
    return row


def pooled(cases: Sequence[Case], prepared: PreparedAudit, jobs: int, watch: Watched) -> Any:
    """The pool itself: `Processes` runs one job in this process."""
    import pickle

    store = MemoryStore()
    sharing = SharedWork(ProcessCrew(store, 30.0), jobs, store, watch, MemoryLimit())
    content = pickle.dumps((tuple(cases), dict(prepared.metrics)))
    return sharing.run([(Pack(cases, prepared.metrics), content)])


def listing(count: int = 10_000) -> dict[str, Any]:
    """How long it takes to list so many records, and what that adds to the memory of this process."""
    small = prepare(replace(PLAN, steps=2))
    (record,) = InProcess().run(small.cases[:1], small.metrics, MemoryStore())
    plain = replace(record, pictures=Pictures())
    with tempfile.TemporaryDirectory() as folder:
        store = FolderStore.create(Path(folder))
        bodies = [(f"{number:024}", replace(plain, key=f"{number:024}").to_json()) for number in range(count)]
        with store._connection() as connection:
            connection.executemany("INSERT INTO records (key, body) VALUES (?, ?)", bodies)
        del bodies
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started, spent = time.perf_counter(), time.process_time()
        found = sum(1 for _ in store.records())
        wall, cpu = time.perf_counter() - started, time.process_time() - spent
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    row = {
        "records": found,
        "seconds": round(wall, 3),
        "cpu_seconds": round(cpu, 3),
        "grown_megabytes": round(grown, 1),
    }
    print(row, flush=True)
    return row


def digits(cases: Sequence[Case], store: FolderStore) -> list[str]:
    """The records without how long they took."""
    found = [store.get(case.key) for case in cases]
    return [replace(one, seconds=0.0, cpu_seconds=0.0).to_json() for one in found if one is not None]


def ray_faults(folder: Path) -> dict[str, Any]:
    """Cases on a local Ray cluster of two nodes; a worker is killed, then a node; compared with an undisturbed run."""
    import ray
    from ray.cluster_utils import Cluster

    prepared = prepare(replace(PLAN, steps=60))
    started = time.monotonic()
    cluster = Cluster()
    cluster.add_node(num_cpus=1)
    node = cluster.add_node(num_cpus=1)
    ready = time.monotonic() - started
    killed: list[str] = []

    def watch(index: int, title: str, slot: int = 0) -> Progress:
        del title, slot
        if index == 6 and not killed:
            process = next(int(one.name) for one in Path("/proc").iterdir() if is_actor(one))
            os.kill(process, signal.SIGKILL)
            killed.append("worker")
        elif index == 12 and len(killed) == 1:
            cluster.remove_node(node, allow_graceful=False)
            killed.append("node")
        return silent

    store, calm = FolderStore.create(folder / "ray"), FolderStore.create(folder / "calm")
    records = list(RayCluster(cluster.address).run(prepared.cases, prepared.metrics, store, watch))
    took = time.monotonic() - started
    ray.shutdown()
    cluster.shutdown()
    list(InProcess().run(prepared.cases, prepared.metrics, calm))
    return {
        "cases": len(prepared.cases),
        "done": len(records),
        "killed": killed,
        "equal": digits(prepared.cases, store) == digits(prepared.cases, calm),
        "cluster_seconds": round(ready, 1),
        "seconds": round(took, 1),
        "actors_left": sum(is_actor(one) for one in Path("/proc").iterdir()),
    }


def is_actor(process: Path) -> bool:
    """Whether a folder of /proc is that of a worker of ours on a Ray cluster."""
    try:
        return process.name.isdigit() and b"ray::CaseActor" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def ray_run(prepared: PreparedAudit) -> dict[str, Any]:
    import ray

    watch = Watched()
    executor: Executor = RayCluster("local", 2)
    row = measured("ray, two actors", executor.run(prepared.cases, prepared.metrics, MemoryStore(), watch), watch)
    ray.shutdown()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.faults:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(ray_faults(Path(folder))))
        return
    prepared = prepared_for(options.seconds)
    cases, rows = prepared.cases, []
    watch = Watched()
    rows.append(measured("in process", InProcess().run(cases, prepared.metrics, MemoryStore(), watch), watch))
    for jobs in (1, 2):
        watch = Watched()
        rows.append(measured(f"pool of {jobs}", pooled(cases, prepared, jobs, watch), watch))
    rows.append(ray_run(prepared))
    alone, one, two, _ = (row["seconds"] for row in rows)
    with tempfile.TemporaryDirectory() as folder:
        faults = ray_faults(Path(folder))
    result = {
        "command": f"python benchmarks/executors.py --seconds {options.seconds:g}",
        "version": VERSION,
        "code": answering_code(),
        "machine": {"system": platform.platform(), "cores": cores(), "torch": torch.__version__},
        "rows": rows,
        "overhead_of_pool": round(one / alone - 1, 4),
        "overhead_beside_cases": round(one / rows[1]["seconds_of_cases"] - 1, 4),
        "speed_up_of_two": round(one / two, 3),
        "ray_faults": faults,
        "listing": listing(),
    }
    print(json.dumps(result, indent=1))
    if options.out is not None:
        write_text(options.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
