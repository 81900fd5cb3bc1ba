"""What running cases elsewhere costs and saves: the pool and a Ray cluster beside one process, and the store's listing.

    python benchmarks/executors.py --out benchmarks/results/executors.json   # the parts that it does not hold yet
    python benchmarks/executors.py --parts faults      # a local Ray cluster of two nodes, of which one is killed

Equal cases of about --seconds of work each, by a fixed number of steps. The overhead is what one worker of the pool
takes, from the moment it has started, over what the same cases take in this process; the speed-up is that of two
workers over one. The start of the workers, which import torch, is told apart. The memory is that of the process that
drives a sweep of many short cases, after a tenth of them and at the end. The load before each part stands beside it: on
cores that others use, a waiting worker and a waiting driver are counted as overhead.
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
from collections.abc import Iterator, Sequence
from contextlib import suppress
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
from leakgauge.sweep import SweepProgress, read_grid, run_sweep
from leakgauge.version import VERSION

PLAN = AuditPlan(
    dataset="digits",
    model="mlp:hidden=[64]",
    train_steps=0,
    batch_size=2,
    rounds=4,
    nulls=4,
    distractors=3,
    attacks=("inverting_gradients",),
    defences=("none", "clipping:max_norm=1"),
    steps=60,
)


_OURS = "LEAKGAUGE_CLUSTER_OF"


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
    list(InProcess().run(trial.cases[:1], {}, MemoryStore()))  # which imports what is imported late
    started = time.process_time()
    list(InProcess().run(trial.cases[:2], {}, MemoryStore()))
    each = (time.process_time() - started) / 2
    return prepare(replace(PLAN, steps=max(1, round((PLAN.steps or 1) * seconds / each))))


def measured(name: str, run: Any, watch: Watched) -> dict[str, Any]:
    """``run`` is the iterator of records."""
    load, started, spent = os.getloadavg()[0], time.monotonic(), time.process_time()
    records = list(run)
    ended, driver = time.monotonic(), time.process_time() - spent
    began = watch.began or started
    work = sum(record.seconds for record in records)
    row = {
        "run": name,
        "cases": len(records),
        "load_before": round(load, 2),
        "start_seconds": round(began - started, 2),
    }
    row |= {"seconds": round(ended - began, 2), "seconds_of_cases": round(work, 2)}
    row |= {
        "driver_cpu_seconds": round(driver, 2),
        "cpu_seconds_of_cases": round(sum(r.cpu_seconds for r in records), 2),
    }
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
    """How long listing so many records takes, also in terms of parsing their JSON alone, and what memory it adds."""
    small = prepare(replace(PLAN, steps=2))
    (record,) = InProcess().run(small.cases[:1], small.metrics, MemoryStore())
    plain = replace(record, pictures=Pictures())
    with tempfile.TemporaryDirectory() as folder:
        store = FolderStore.create(Path(folder))
        bodies = [(f"{number:024}", replace(plain, key=f"{number:024}").to_json()) for number in range(count)]
        with store._connection() as connection:
            connection.executemany("INSERT INTO records (key, body) VALUES (?, ?)", bodies)
        body = bodies[0][1]
        del bodies
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started, spent = time.perf_counter(), time.process_time()
        found = sum(1 for _ in store.records())
        wall, cpu = time.perf_counter() - started, time.process_time() - spent
        spent = time.process_time()
        for _ in range(count):
            json.loads(body)
        parsing = time.process_time() - spent
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    row = {
        "records": found,
        "seconds": round(wall, 3),
        "cpu_seconds": round(cpu, 3),
        "times_of_parsing": round(cpu / parsing, 1),
        "grown_megabytes": round(grown, 1),
    }
    print(row, flush=True)
    return row


def driver_memory(cells: int = 20) -> dict[str, Any]:
    """What a sweep of a hundred cases a cell adds to the memory of the process that drives it."""
    words = {
        "dataset": "digits",
        "model": "mlp:hidden=[4]",
        "train_steps": 0,
        "batch_size": 1,
        "rounds": 50,
        "nulls": 1,
    }
    words |= {"distractors": 5, "attacks": ["linear_layer"], "defences": ["none"], "seeds": list(range(cells))}
    seen: dict[int, float] = {}

    def told(news: SweepProgress) -> None:
        if news.done % 50 == 0:
            seen.setdefault(news.done, _megabytes())

    with tempfile.TemporaryDirectory() as folder:
        ended = run_sweep(read_grid(words), Path(folder), InProcess(), told)
    early = max(count for count in seen if count <= max(100, ended.done // 10))
    row = {"cases": ended.done, "megabytes_early": seen[early], "after_cases": early}
    row |= {"megabytes_at_end": seen[ended.done], "grown_megabytes": round(seen[ended.done] - seen[early], 1)}
    print(row, flush=True)
    return row


def _megabytes() -> float:
    """What this process holds now; the most that it ever held would hide what it gave back."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


def digits(cases: Sequence[Case], store: FolderStore) -> list[str]:
    """The records without how long they took."""
    found = [store.get(case.key) for case in cases]
    return [replace(one, seconds=0.0, cpu_seconds=0.0).to_json() for one in found if one is not None]


def ray_faults(folder: Path) -> dict[str, Any]:
    """Cases on a local Ray cluster of two nodes; a worker is killed, then a node; compared with an undisturbed run."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ[_OURS] = str(os.getpid())  # which the processes of this cluster inherit, and no others
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    prepared = prepare(replace(PLAN, rounds=6, nulls=6, steps=60))
    started = time.monotonic()
    cluster = Cluster()
    cluster.add_node(num_cpus=1)
    node = cluster.add_node(num_cpus=1)
    ready = time.monotonic() - started
    killed: list[str] = []

    def watch(index: int, title: str, slot: int = 0) -> Progress:
        del title, slot
        if index == 6 and not killed:
            os.kill(next(actors()), signal.SIGKILL)
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
        "actors_left": len(outlived()),
    }


def actors() -> Iterator[int]:
    """The workers of the cluster that this process started; others may run beside it."""
    mark = f"{_OURS}={os.getpid()}".encode()
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            named = process.name.isdigit() and b"ray::CaseActor" in (process / "cmdline").read_bytes()
            if named and mark in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)


def outlived(patience: float = 20.0) -> list[int]:
    """Workers that are left once they have had the time to see that their cluster is gone."""
    until = time.monotonic() + patience
    while (left := list(actors())) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def ray_run(prepared: PreparedAudit) -> dict[str, Any]:
    import ray

    watch = Watched()
    executor: Executor = RayCluster("local", 2)
    row = measured("ray, two actors", executor.run(prepared.cases, prepared.metrics, MemoryStore(), watch), watch)
    ray.shutdown()
    return row


PARTS = ("pool", "listing", "memory", "faults", "ray")


def measure(part: str, seconds: float) -> dict[str, Any]:
    """The values of one part, by their names in the file."""
    if part == "listing":
        return {"listing": listing()}
    if part == "memory":
        return {"driver_memory": driver_memory()}
    if part == "faults":
        with tempfile.TemporaryDirectory() as folder:
            return {"ray_faults": ray_faults(Path(folder))}
    prepared = prepared_for(seconds)
    if part == "ray":
        return {"ray": ray_run(prepared)}
    watch = Watched()
    alone = measured("in process", InProcess().run(prepared.cases, prepared.metrics, MemoryStore(), watch), watch)
    watch = Watched()
    one = measured("pool of 1", pooled(prepared.cases, prepared, 1, watch), watch)
    watch = Watched()
    two = measured("pool of 2", pooled(prepared.cases, prepared, 2, watch), watch)
    return {
        "in_process": alone,
        "pool_of_1": one,
        "pool_of_2": two,
        "overhead": round(one["seconds"] / alone["seconds"] - 1, 4),
        "overhead_in_cpu_seconds_of_driver": round(one["driver_cpu_seconds"] / one["cpu_seconds_of_cases"], 4),
        "speed_up_of_two": round(one["seconds"] / two["seconds"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="measured again where the file holds them")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if options.out is not None and options.out.is_file():
        rows = json.loads(options.out.read_text("utf-8"))["rows"]
    held = {row["part"] for row in rows}
    for part in options.parts or [one for one in PARTS if one not in held]:
        load = os.getloadavg()[0]
        found = measure(part, options.seconds)
        print(json.dumps(found), flush=True)
        rows = [row for row in rows if row["part"] != part] + rows_of(part, found, round(load, 2))
        result = {
            "title": "Executors: what they cost, and that they survive",
            "command": f"python benchmarks/executors.py --seconds {options.seconds:g} --out FILE",
            "version": VERSION,
            "code": answering_code(),
            "machine": f"{platform.platform()}, {cores()} cores, torch {torch.__version__}",
            "rows": rows,
        }
        if options.out is not None:
            write_text(options.out, json.dumps(result, indent=1) + "\n")


def rows_of(part: str, found: dict[str, Any], load: float) -> list[dict[str, Any]]:
    """One row for each thing that was measured, with the load of the machine before it."""
    ratios = {name: value for name, value in found.items() if not isinstance(value, dict)}
    rows = [{"part": part, "of": name, **value} for name, value in found.items() if isinstance(value, dict)]
    if ratios:
        rows.append({"part": part, "of": "one beside two", **ratios})
    return [{**row, "load_before": load} for row in rows]


if __name__ == "__main__":
    main()
