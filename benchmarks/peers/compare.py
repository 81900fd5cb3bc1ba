"""Other people's programs and `best` on the same updates, with the same CPU seconds and the same scoring.

    python benchmarks/peers --breaching DIR --gradattack DIR --invertinggradients DIR --data-root DIR --out FILE
    python benchmarks/peers --breaching DIR --models lenet --seconds 6 --images 10 --data-root DIR

``DIR`` is where a project was cloned or unpacked to; what it imports must be installed beside LeakGauge. Nothing of
theirs is part of LeakGauge; the projects are found at

    https://github.com/JonasGeiping/breaching
    https://github.com/Princeton-SysML/GradAttack
    https://github.com/JonasGeiping/invertinggradients

Untrained networks (seed 0) in eval mode, CIFAR-10 test images from --first on, on which nothing was tuned, one
gradient, labels known to all, one thread. A peer runs in a process of its own that is never told the images, with the
settings it is shipped with; two short runs are timed to give it as many steps as its seconds hold, and if these are
left in part it runs again with more. The null is what came back scored against the next victim. With --out every
finished attack is kept at once, and the same command continues.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contest import warm_up
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.recipes.best import Best
from leakgauge.catalogue import MODELS
from leakgauge.config import build as build_part
from leakgauge.errors import InvalidCase, LeakGaugeError
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.models import build
from leakgauge.protocol import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Outcome, Reconstruction
from leakgauge.version import VERSION
from peers.registry import PEERS, attacks_of, projects
from peers.table import rows_of, table
from peers.worker import write_task
from quality import SEED, observe
from quality_cases import load_victims, victim_and_next
from span import psnr_of

Row = dict[str, Any]

BENCHMARKS = Path(__file__).resolve().parent.parent
VICTIMS = ("lenet", "convnet", "resnet20_4", "resnet:depth=18")
SECONDS = {"lenet": 6.0, "convnet": 40.0, "resnet20_4": 60.0, "resnet:depth=18": 60.0}
"""For an attack on one image, unless told otherwise; on several, as many times that."""


def seen_on(model: str, truth: Batch, classes: int) -> UpdateObservation:
    shape = truth.inputs.shape[1:]
    factory = build_part(MODELS, model, kind="model")
    module = build(factory, (shape[0], shape[1], shape[2]), classes, seed=SEED).eval()
    return observe(module, truth.inputs, truth.labels)


def task_of(model: str, seen: UpdateObservation, classes: int, seconds: float) -> dict[str, Any]:
    """All that a peer's process is told."""
    assert seen.labels is not None
    return {
        "model": model,
        "seed": SEED,
        "classes": classes,
        "shape": np.array(seen.space.shape),
        "labels": seen.labels.numpy(),
        "seconds": seconds,
        **{f"gradient:{name}": one.numpy() for name, one in seen.update.params.items()},
    }


def by_peer(name: str, checkout: Path, task: dict[str, Any]) -> tuple[Tensor | None, Row]:
    """What a peer brings back; where its program fails, why, in its own last words."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder, "task.npz"), Path(folder, "answer.npz")
        write_task(asked, **task)
        words = [sys.executable, "-m", "peers.worker", name, str(checkout.resolve()), str(asked), str(answer)]
        ran = subprocess.run(words, cwd=BENCHMARKS, env=_environment(), capture_output=True, text=True, check=False)
        if not answer.is_file():
            last = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return None, {"failed": last[:300]}
        with np.load(answer, allow_pickle=False) as found:
            facts = {"cpu_seconds": round(float(found["cpu_seconds"]), 2), "steps": int(found["steps"])}
            return torch.from_numpy(found["images"]), facts


def _environment() -> dict[str, str]:
    """That of this process, one thread, and the same LeakGauge."""
    ours = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ours}


def by_best(seen: UpdateObservation, seconds: float, number: int) -> tuple[Tensor | None, Row]:
    """What `best` brings back; like a peer it has made a step before, so that what is imported late is not counted."""
    warm_up()
    started = time.process_time()
    found = Best(Budget(seconds=seconds))(seen, generator=seeded(SEED, "peers", number))
    facts = {"cpu_seconds": round(time.process_time() - started, 2), "steps": int(found.facts.get("steps", 0))}
    return found.inputs, facts


def scored(images: Tensor | None, truth: Batch, stranger: Batch) -> Row:
    """One scoring for all."""
    if images is None:
        return {"psnr": [], "null": []}
    found = Reconstruction(images, truth.labels, Outcome.STEPS_EXHAUSTED, None, {})
    return {"psnr": psnr_of(found, truth), "null": psnr_of(found, stranger)}


def compare(options: argparse.Namespace) -> list[Row]:
    """Attack what is missing: one victim of every cell before the second of any."""
    checkouts = checked(options)
    attacks = [attack for name in checkouts for attack in attacks_of(name) if attack not in options.without]
    contenders = ["best", *attacks]
    victims, rows = load_victims(options.data_root), kept_in(options.out, older=options.keep_older)
    done = {(row["victim"], row["model"], row["batch_size"], row["by"], row["seconds"]) for row in rows}
    for number, model, size, name in product(range(options.images), options.models, options.batch, contenders):
        seconds = (options.seconds or SECONDS.get(model, 60.0)) * size
        if (number, model, size, name, seconds) in done:
            continue
        truth, stranger = victim_and_next(victims.batch, options.first, number, size)
        seen = seen_on(model, truth, victims.num_classes)
        if name == "best":
            images, facts = by_best(seen, seconds, number)
        else:
            task = task_of(model, seen, victims.num_classes, seconds)
            images, facts = by_peer(name, checkouts[name.partition(",")[0]], task)
        row = {"model": model, "batch_size": size, "seconds": seconds, "victim": number, "by": name}
        rows.append({**row, **scored(images, truth, stranger), **facts, "code": answering_code()})
        tell(rows[-1])
        keep(options, rows, victims.name)
    return rows


def checked(options: argparse.Namespace) -> dict[str, Path]:
    """The folders that were given, by project; refused before anything is run where one is not what it should be."""
    checkouts = {name: getattr(options, name) for name in projects() if getattr(options, name) is not None}
    for name, checkout in checkouts.items():
        PEERS[name](checkout).check()
    if not checkouts:
        given = ", ".join(f"--{name}" for name in projects())
        raise InvalidCase(f"There is no peer to compare with; give the folder of at least one: {given}.")
    return checkouts


def tell(row: Row) -> None:
    mean = f"{statistics.fmean(row['psnr']):.2f} dB" if row["psnr"] else f"no result ({row.get('failed')})"
    cell = f"{row['model']}, batch {row['batch_size']}, {row['seconds']:g} s, victim {row['victim']}"
    print(f"{cell}, {row['by']}: {mean}", file=sys.stderr, flush=True)


def kept_in(file: Path | None, *, older: bool = False) -> list[Row]:
    """What was attacked before; `best` by code that has changed since only where ``older`` rows are wanted."""
    if file is None or not file.is_file():
        return []
    attacks: list[Row] = json.loads(file.read_text(encoding="utf-8"))["attacks"]
    code = answering_code()
    return [row for row in attacks if older or row["by"] != "best" or row["code"] == code]


def keep(options: argparse.Namespace, rows: Sequence[Row], data: str) -> None:
    if options.out is not None:
        write_text(options.out, json.dumps(result(options.first, rows, data), indent=1, allow_nan=False) + "\n")


def result(first: int, rows: Sequence[Row], data: str) -> Row:
    given = " ".join(f"--{name} DIR" for name in projects() if any(row["by"].startswith(name) for row in rows))
    return {
        "title": "`best` beside other people's programs: PSNR in dB at equal CPU seconds",
        "command": f"python benchmarks/peers {given} --first {first} --data-root DIR --out FILE",
        "version": VERSION,
        "torch": str(torch.__version__),
        "seed": SEED,
        "data": data,
        "rows": rows_of(rows),
        "attacks": list(rows),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in projects():
        parser.add_argument(f"--{name}", type=Path, metavar="DIR", help=f"where {name} was cloned or unpacked to")
    parser.add_argument("--models", nargs="+", default=list(VICTIMS), help="of the catalogue, such as convnet:width=16")
    parser.add_argument("--batch", nargs="+", type=int, default=[1])
    parser.add_argument("--seconds", type=float, help="CPU seconds per image; by model where left out")
    parser.add_argument("--images", type=int, default=10, help="victims of each network")
    parser.add_argument(
        "--first", type=int, default=6000, help="number of the first image; those below 100 are tuned on"
    )
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="folder that holds CIFAR-10's binary version")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the results here, and continue from it")
    parser.add_argument("--without", nargs="+", default=[], choices=PEERS, metavar="ATTACK", help="peers not to run")
    parser.add_argument(
        "--keep-older", action="store_true", help="do not attack again what `best` met by earlier code; a row names it"
    )
    parser.add_argument("--json", action="store_true", help="print all that was found, for machines")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        rows = compare(options)
    except LeakGaugeError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped; the same command continues." if options.out else "Stopped.", file=sys.stderr)
        return 130
    print(json.dumps(rows, indent=1) if options.json else table(rows_of(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
