"""Audits in a loop, stopped at random moments: memory stays flat, no process and no file is left, every store resumes.

    python benchmarks/soak.py --minutes 60 --out FILE

``steady`` runs whole audits one after another in this process, each with data of its own, and fits a line to the
memory it holds; ``stopped`` starts commands in turn (audit and sweep with workers, trade-off, a table of a paper, an
attack on InstaHide), sends SIGINT or SIGTERM at a random moment, looks at what is left, and runs each again until it is
complete: the answer is then that of a command nobody disturbed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from leakgauge.audit.execute import execute
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.store import FolderStore
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.version import VERSION

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": "mlp:hidden=(8,)",
    "train_steps": 2,
    "steps": 5,
    "batch_size": 1,
    "attacks": ("linear_layer", "quasi_newton"),
    "defences": ("none", "pruning:keep=0.1"),
    "nulls": 1,
}
TRADEOFF: dict[str, Any] = {
    "dataset": "digits",
    "model": "mlp:hidden=(6,)",
    "train_steps": 2,
    "defences": ["none", "clipping:max_norm=1+gaussian_noise:std=5"],
    "attacks": ["linear_layer"],
    "batch_sizes": [1],
    "images": 2,
    "threat_models": ["strongest"],
    "training_steps": 6,
    "distractors": 20,
}
WARM_UP = 5
"""Audits until caches and pools have the size that they keep."""
MOST_GROWTH = 64.0
"""Kilobytes for each audit that memory may seem to grow by; one record of the smallest audit is larger."""

_STOPS = (signal.SIGINT, signal.SIGTERM)
_ENDS = (0, 130, *(-number for number in _STOPS))
"""Answered, stopped, or killed before Python could hear of it."""


@dataclass(frozen=True)
class Held:
    """What a process holds at a moment: kilobytes of memory, open files and threads."""

    memory: float
    files: int
    threads: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        memory = pages * os.sysconf("SC_PAGE_SIZE") / 1024
        return cls(memory, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))


def growth(held: Sequence[Held]) -> float:
    """Kilobytes by which memory grows with each audit after the warm-up: the median slope between pairs, which one
    large step does not move [Theil, 1950; Sen, 1968]."""
    memory = np.array([one.memory for one in held[WARM_UP:]])
    first, second = np.triu_indices(len(memory), 1)
    return float(np.median((memory[second] - memory[first]) / (second - first))) if len(first) else 0.0


def steady(folder: Path, until: float, most: int | None = None) -> list[Held]:
    """What this process holds after each of as many audits as there is time for, each in a folder that is removed."""
    held: list[Held] = []
    while time.monotonic() < until and (most is None or len(held) < most):
        out = folder / f"audit{len(held)}"
        execute(prepare(AuditPlan(**SMALL, seed=len(held))), out)
        shutil.rmtree(out)
        held.append(Held.now())
    return held


@dataclass(frozen=True)
class Stoppable:
    """A command that takes up again what was stopped: its words but for ``--out``, among files of ``folder``."""

    name: str
    words: tuple[str, ...]
    folder: Path

    def started(self, out: Path) -> subprocess.Popen[bytes]:
        """In a group of its own, so that whom it started can be found."""
        words = [sys.executable, "-m", "leakgauge", *self.words, "--json", "--out", str(out)]
        silent = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
        return subprocess.Popen(words, cwd=self.folder, **silent)  # type: ignore[call-overload,no-any-return]


def stoppables(folder: Path) -> list[Stoppable]:
    """What is stopped, and the files that it needs."""
    named = {name: value if isinstance(value, tuple) else (value,) for name, value in SMALL.items()}
    single = {name: name.removesuffix("s") if isinstance(SMALL[name], tuple) else name for name in named}
    options = [
        word
        for name, values in named.items()
        for value in values
        for word in (f"--{single[name].replace('_', '-')}", str(value))
    ]
    write_text(folder / "grid.json", json.dumps({**SMALL, "seeds": [0, 1]}))
    write_text(folder / "tradeoff.json", json.dumps(TRADEOFF))
    hidden = ("--dataset", "photos:size=16", "--private", "8", "--copies", "20", "--scheme", "inside:k=2")
    made = ("instahide", "challenge", "--make", "published", "--secret", "kept", *hidden, "--insecure-seed", "0")
    subprocess.run([sys.executable, "-m", "leakgauge", *made], cwd=folder, capture_output=True, check=True)
    attacked = ("instahide", "attack", "published", "--secret", "kept", "--labels-only", "--nulls", "1")
    return [
        Stoppable("audit", ("audit", "--jobs", "2", *options), folder),
        Stoppable("tradeoff", ("tradeoff", "tradeoff.json"), folder),
        Stoppable("sweep", ("sweep", "grid.json", "--jobs", "2"), folder),
        Stoppable("reproduce", ("reproduce", "instahide/search"), folder),
        Stoppable("instahide attack", attacked, folder),
    ]


_TIMED = re.compile(r"seconds|overhead|sentence")
"""Keys of what two equal runs differ in: times, and the sentence of a trade-off, which has one."""


def answer(printed: bytes) -> Any:
    """What a command said in JSON, without its times."""
    return _without_times(json.loads(printed))


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(one) for name, one in value.items() if not _TIMED.search(name)}
    return [_without_times(one) for one in value] if isinstance(value, list) else value


def stopped(what: Stoppable, out: Path, random: Random, seconds: float, reference: Any) -> dict[str, Any]:
    """One command that is stopped at random moments of its first ``seconds`` until it is complete; what was wrong."""
    wrong: list[str] = []
    stops = 0
    for attempt in range(6):
        with what.started(out) as one:
            if attempt < 2:
                with suppress(subprocess.TimeoutExpired):
                    one.wait(random.uniform(0.0, seconds))
                if one.poll() is None:
                    one.send_signal(random.choice(_STOPS))
                    stops += 1
            printed, said = one.communicate(timeout=1800)  # a busy machine is no hang
        wrong += [] if one.returncode in _ENDS else [f"ended with {one.returncode}: {said.decode()[-200:]}"]
        wrong += [f"orphan {process}" for process in outlived(one.pid)]
        wrong += left_over(out)
        if one.returncode == 0:
            wrong += [] if answer(printed) == reference else ["another answer than undisturbed"]
            break
    else:
        wrong.append("never complete")
    return {"stops": stops, "wrong": [f"{what.name}: {sentence}" for sentence in wrong]}


def outlived(leader: int, patience: float = 20.0) -> list[str]:
    """Processes that a command started and that outlived it. A worker whose command was killed learns of it from the
    end of its pipe, and may first have to finish importing: it has ``patience`` seconds to see it."""
    until = time.monotonic() + patience
    while (left := list(group(leader))) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def group(leader: int) -> Iterator[str]:
    """The living processes of a command's group, each with what it runs."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text("utf-8").rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                yield f"{entry.name}: {(entry / 'cmdline').read_text('utf-8').replace(chr(0), ' ')[:200]}"


def left_over(out: Path) -> list[str]:
    """Half-written files, and what of a store cannot be read."""
    if not (out / "audit.sqlite").is_file():
        return []
    wrong = [f"half a file {path.name}" for path in out.rglob(".*")]
    with closing(sqlite3.connect(out / "audit.sqlite")) as connection:
        state = connection.execute("PRAGMA integrity_check").fetchone()[0]
        wrong += [] if state == "ok" else [f"database {state}"]
    store = FolderStore.open(out)
    for key in [key for run in store.runs() for key in run["keys"]]:
        store.get(key)
    return wrong


def soak(minutes: float, seed: int = 0, audits: int | None = None, stops: int | None = None) -> list[dict[str, Any]]:
    """Half of the time each; ``audits`` and ``stops`` end them earlier."""
    random, began = Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory() as around, tempfile.TemporaryDirectory() as plans:
        folder = Path(around)
        held = steady(folder, began + 30 * minutes, audits)
        chosen = stoppables(Path(plans))[:stops]
        references = {what: undisturbed(what, folder / "reference") for what in chosen}
        ends: list[tuple[str, dict[str, Any]]] = []
        for what in cycle(chosen):
            if len(ends) == stops or (len(ends) >= len(chosen) and time.monotonic() > began + 60 * minutes):
                break
            out, (seconds, reference) = folder / f"stopped{len(ends)}", references[what]
            ends.append((what.name, stopped(what, out, random, seconds, reference)))
            shutil.rmtree(out, ignore_errors=True)
        left = sorted(path.name for path in folder.iterdir())
    settled = held[min(WARM_UP, len(held) - 1) :]
    return [
        {
            "kind": "steady",
            "audits": len(held),
            "kilobytes_per_audit": round(growth(held), 1),
            "files": settled[-1].files - settled[0].files,
            "threads": settled[-1].threads - settled[0].threads,
            "wrong": [f"left behind: {name}" for name in left],
        },
        {
            "kind": "stopped",
            "audits": len(ends),
            "commands": dict(Counter(name for name, _ in ends)),
            "stops": sum(one["stops"] for _, one in ends),
            "wrong": [sentence for _, one in ends for sentence in one["wrong"]],
        },
    ]


def undisturbed(what: Stoppable, out: Path) -> tuple[float, Any]:
    """How long a command takes that nobody stops, and its answer."""
    first = time.monotonic()
    with what.started(out) as one:
        printed, said = one.communicate()
    if one.returncode:
        raise RuntimeError(f"{what.name} ended with {one.returncode}: {said.decode()[-500:]}")
    shutil.rmtree(out)
    return time.monotonic() - first, answer(printed)


def sound(found: Sequence[dict[str, Any]]) -> bool:
    first = found[0]
    return (
        first["kilobytes_per_audit"] <= MOST_GROWTH
        and first["files"] <= 0
        and first["threads"] <= 0
        and not any(one["wrong"] for one in found)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="result file")
    given = parser.parse_args(arguments)
    found = soak(given.minutes, given.seed)
    for one in found:
        print(one, flush=True)
    if given.out is not None:
        facts = {
            "title": "Audits in a loop, stopped at random",
            "command": f"python benchmarks/soak.py --minutes {given.minutes:g}",
            "version": VERSION,
            "fingerprint": answering_code(),
            "seed": given.seed,
            "scale": f"{given.minutes:g} minutes",
            "rows": found,
        }
        write_text(given.out, json.dumps(facts, indent=1) + "\n")
    print("sound" if sound(found) else "NOT sound")
    return 0 if sound(found) else 1


if __name__ == "__main__":
    sys.exit(main())
