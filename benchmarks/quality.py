"""How good a reconstruction so many CPU seconds buy: LeakGauge's best recipe beside the 2020 method, image by image.

    python benchmarks/quality.py --model lenet --seconds 6 --data-root DIR --out lenet.json
    python benchmarks/quality.py --model convnet --seconds 40 --method baseline --workers 2 --data-root DIR --out FILE

Each case is one CIFAR-10 test image, an untrained model (seed 0) in eval mode, its gradient, labels known, one thread.
Images are taken by index, by default from 100 on: the first hundred are for tuning and take part in no comparison.
Without --data-root the embedded photographs stand in, and the result says so.

Both methods get the same seconds of process CPU time; what each used is in its row. The 2020 method needs the number of
its steps beforehand: a handful is timed for it, outside its budget, and if it then left part of the budget it runs
again with more steps. Nulls: every reconstruction is also scored against the next image, and a few of our attacks are
run on the gradient of an unrelated image with the victim's label.

With --out every finished attack is written at once; a run that was stopped continues where it was, and methods can be
run one after the other into the same file.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import baseline
from leakgauge.attacks.base import Attack
from leakgauge.attacks.budget import Budget
from leakgauge.catalogue import MODELS
from leakgauge.defences import NoDefence
from leakgauge.errors import InvalidCase, InvalidFile, LeakGaugeError
from leakgauge.files import writable_folder, write_text
from leakgauge.metrics import PSNR, Comparison
from leakgauge.models import build
from leakgauge.protocol import THREAT_MODELS, Federation, UpdateObservation, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.types import Batch
from leakgauge.version import VERSION
from quality_cases import METHODS, Method, Row, Task, load_victims, plan
from quality_summary import summary_of, table

SEED = 0

ENOUGH = 0.95
"""The fraction of its CPU seconds that the 2020 method must have had; what it had beyond them stays its own."""

ATTEMPTS = 3

TOTAL_VARIATION = {"lenet": 1e-2, "convnet": 1e-2, "resnet20_4": 0.0}
"""The 2020 method's weights for untrained models [Geiping et al., 2020, Table 4]; for ConvNet its default [App. C]."""


@dataclass(frozen=True)
class Found:
    """What an attack returned, ``images`` in [0, 1] or None, and what it cost."""

    images: Tensor | None
    cpu_seconds: float
    steps: int
    facts: dict[str, Any]


def solve(task: Task) -> Row:
    """Run one attack and score it; nothing but the task decides the result."""
    module = build(MODELS[task.model](), _shape(task.victim), task.num_classes, seed=SEED).eval()
    observation = observe(module, torch.from_numpy(task.observed.copy())[None], torch.tensor([task.label]))
    found = run_baseline(module, observation, task) if task.method == "baseline" else run_best(observation, task)
    return {
        "method": task.method,
        "image": task.image,
        "null": task.null,
        "label": task.label,
        "psnr": psnr(found.images, task.victim),
        "psnr_to_next_image": psnr(found.images, task.neighbour),
        "cpu_seconds": round(found.cpu_seconds, 3),
        "steps": found.steps,
        "attack": describe(task.method, task.model, task.seconds),
        "facts": found.facts,
    }


def observe(module: nn.Module, images: Tensor, labels: Tensor) -> UpdateObservation:
    learner, state = learner_and_state(module)
    return simulate_round(
        Federation(learner, state),
        Batch(images, labels),
        threat_model=THREAT_MODELS["informed"],
        defence=NoDefence(),
        generator=seeded(SEED, "client"),
    )


def run_baseline(module: nn.Module, observation: UpdateObservation, task: Task) -> Found:
    """The 2020 method with as many steps as its seconds allow, counted before the clock runs."""
    labels = observation.labels
    assert labels is not None
    mean, std = baseline.normalisation(module)
    tv = TOTAL_VARIATION[task.model]
    rehearsal = baseline.make_step(
        module, torch.full((1, *observation.space.shape), 0.5), labels, observation.update.params, tv
    )
    return filled(
        task.seconds,
        baseline.steps_within(task.seconds, rehearsal),
        lambda steps: baseline.invert(
            module,
            observation.update.params,
            labels,
            observation.space.shape,
            mean=mean,
            std=std,
            tv=tv,
            steps=steps,
            generator=seeded(SEED, "baseline", task.image),
        ),
    )


def filled(seconds: float, steps: int, attack: Callable[[int], Tensor]) -> Found:
    """What an attack that wants its number of steps beforehand brings back in so many CPU seconds.

    If they took less than was due to it, as a busy machine spoilt the count, it starts anew with more; what decides is
    the clock alone.
    """
    for attempt in range(1, ATTEMPTS + 1):
        started = time.process_time()
        images = attack(steps)
        used = time.process_time() - started
        found = Found(images, used, steps, {"attempts": attempt})
        if used >= ENOUGH * seconds:
            break
        steps = math.ceil(steps * seconds / used)
    return found


def run_best(observation: UpdateObservation, task: Task) -> Found:
    attack = best_attack(task.seconds)
    started = time.process_time()
    result = attack(observation, generator=seeded(SEED, "best", task.image))
    used = time.process_time() - started
    return Found(result.inputs, used, int(result.facts["steps"]), dict(result.facts))


def best_attack(seconds: float) -> Attack:
    from leakgauge.attacks.recipes import best

    return replace(best(), budget=Budget(seconds=seconds, clock="cpu"))


def describe(method: Method, model: str, seconds: float) -> str:
    if method == "baseline":
        return f"Inverting Gradients (2020), tv={TOTAL_VARIATION[model]:g}"
    return repr(best_attack(seconds))


def psnr(images: Tensor | None, truth: NDArray[np.float32]) -> float | None:
    """PSNR of the one image in ``images``, or None if the attack returned none."""
    if images is None:
        return None
    original = torch.from_numpy(truth.copy())[None]
    return float(PSNR()(Comparison(original, images, None, torch.zeros(1), None)))


class Results:
    """The rows so far, in a file that is whole at every moment, or in memory if there is none."""

    def __init__(self, path: Path | None, setting: dict[str, Any], command: str) -> None:
        self.path, self.setting = path, setting
        self.commands = [command]
        self.rows: list[Row] = []
        if path is not None:
            writable_folder(path.parent)
            if path.exists():
                self._continue(path, command)

    def _continue(self, path: Path, command: str) -> None:
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            earlier, self.rows, self.commands = stored["setting"], list(stored["rows"]), list(stored["commands"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidFile(f"{path} is not a result of this benchmark; choose another --out.") from error
        for name, value in self.setting.items():
            if earlier.get(name) != value:
                raise InvalidCase(
                    f"{path} holds results with {name} {earlier.get(name)!r}, not {value!r}; choose another --out."
                )
        if command not in self.commands:
            self.commands.append(command)

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        """The tasks without a row; a row of an attack that has changed since is refused."""
        tasks = list(tasks)
        attacks = {task.method: describe(task.method, task.model, task.seconds) for task in tasks}
        for row in self.rows:
            current = attacks.get(row["method"], row["attack"])
            if row["attack"] != current:
                raise InvalidCase(
                    f"{self.path} holds results of {row['attack']}, but {row['method']} is now {current}; "
                    "choose another --out."
                )
        done = {(row["method"], row["image"], row["null"]) for row in self.rows}
        return [task for task in tasks if task.key not in done]

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.rows.sort(key=lambda row: (row["null"], row["image"], row["method"]))
        self.write()

    def write(self) -> None:
        if self.path is not None:
            write_text(self.path, self.text() + "\n")

    def content(self) -> dict[str, Any]:
        return {
            "benchmark": "quality",
            "commands": self.commands,
            "setting": self.setting,
            "summary": summary_of(self.rows),
            "rows": self.rows,
        }

    def text(self) -> str:
        return json.dumps(self.content(), indent=1, allow_nan=False)


def setting_of(model: str, seconds: float, data: str) -> dict[str, Any]:
    """All that decides a row besides its image and its attack."""
    return {
        "model": model,
        "weights": "untrained",
        "mode": "eval",
        "batch": 1,
        "labels": "known",
        "data": data,
        "cpu_seconds": seconds,
        "seed": SEED,
        "threads": 1,
        "versions": {
            "leakgauge": VERSION,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "processor": torch.backends.cpu.get_cpu_capability(),
    }


def rows_of(tasks: Sequence[Task], workers: int) -> Iterator[Row]:
    """The rows as they are finished, in this process or in ``workers`` fresh ones."""
    if workers == 1:
        yield from map(solve, tasks)
        return
    with ProcessPoolExecutor(
        min(workers, len(tasks)), multiprocessing.get_context("spawn"), initializer=_prepare_worker
    ) as pool:
        futures = [pool.submit(solve, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _prepare_worker() -> None:
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        parent.join()
        os._exit(1)

    # A worker whose parent was killed would otherwise wait for work for ever.
    threading.Thread(target=leave_with_parent, daemon=True).start()


def compare(options: argparse.Namespace, command: str) -> Results:
    """Run what is missing, one line on stderr per finished attack."""
    if not options.seconds > 0 or not math.isfinite(options.seconds) or options.workers < 1 or options.nulls < 0:
        raise InvalidCase("The benchmark needs --seconds above 0, --workers from 1 and --nulls from 0 on; correct it.")
    victims = load_victims(options.data_root)
    methods = METHODS if options.method == "both" else (options.method,)
    tasks = plan(
        victims,
        methods,
        model=options.model,
        seconds=options.seconds,
        first=options.first,
        images=options.images,
        nulls=options.nulls,
    )
    results = Results(options.out, setting_of(options.model, options.seconds, victims.name), command)
    missing = results.missing(tasks)
    del victims
    if len(missing) < len(tasks):
        print(f"{len(tasks) - len(missing)} of {len(tasks)} attacks were done before", file=sys.stderr)
    started = time.monotonic()
    if missing:
        for done, row in enumerate(rows_of(missing, options.workers), start=1):
            results.add(row)
            left = (time.monotonic() - started) / done * (len(missing) - done)
            print(f"{done}/{len(missing)} {_line(row)}; about {_duration(left)} left", file=sys.stderr)
    results.write()
    return results


def _line(row: Row) -> str:
    score = "no result" if row["psnr"] is None else f"{row['psnr']:.2f} dB"
    name = row["method"] + (" (null)" if row["null"] else "")
    return f"{name}, image {row['image']}: {score}, {row['steps']} steps, {row['cpu_seconds']:.1f} CPU s"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _shape(image: NDArray[np.float32]) -> tuple[int, int, int]:
    channels, height, width = image.shape
    return channels, height, width


def _command(options: argparse.Namespace) -> str:
    """The command line as others can repeat it: their folders have other names."""
    words: list[object] = ["python", "benchmarks/quality.py", "--model", options.model, "--method", options.method]
    words += ["--seconds", f"{options.seconds:g}", "--first", options.first, "--images", options.images]
    words += ["--nulls", options.nulls, "--workers", options.workers]
    words += [] if options.data_root is None else ["--data-root", "DIR"]
    words += [] if options.out is None else ["--out", "FILE"]
    return shlex.join(map(str, words))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(TOTAL_VARIATION), default="lenet")
    parser.add_argument("--method", choices=(*METHODS, "both"), default="both")
    parser.add_argument("--seconds", type=float, required=True, help="CPU seconds per attack")
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--first", type=int, default=100, help="number of the first image; those before are for tuning")
    parser.add_argument("--nulls", type=int, default=3, help="on how many images our attack gets an unrelated gradient")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with one thread")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="folder that holds CIFAR-10's binary version")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the results here, and continue from it")
    parser.add_argument("--json", action="store_true", help="print all rows, for machines")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        results = compare(options, _command(options))
    except LeakGaugeError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped; the same command continues." if options.out else "Stopped.", file=sys.stderr)
        return 130
    print(results.text() if options.json else table(results.setting, results.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
