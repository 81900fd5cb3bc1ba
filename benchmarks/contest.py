"""Is `best` the best attack there is here? The attacks of the catalogue against each other, cell by cell.

    python benchmarks/contest.py --data-root DIR --out FILE                      # what is missing, then the table
    python benchmarks/contest.py --data-root DIR --out FILE --cells LeNet --seconds 5 20 60 300 --victims 3

A cell is a network, its weights and a batch size; every contender gets the same update and the same CPU seconds, one
thread, labels known, networks in eval mode. Only attacks that could win a cell take part in it. Images are CIFAR-10
test images from --first on, on which no recipe was tuned. The null is what came back scored against the next victim.

With --out every finished attack is kept at once; a run that was stopped goes on where it was, and rows of code that
has changed since are measured anew. Cells and budgets that are not asked for stay as they are; `code` of an attack says
which.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import architectures
from leakgauge.attacks.budget import Budget, with_budget
from leakgauge.attacks.recipes.best import Best
from leakgauge.catalogue import ATTACKS
from leakgauge.config import build, build_dataset
from leakgauge.data import Dataset
from leakgauge.errors import LeakGaugeError
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.models import Compact
from leakgauge.models import build as build_model
from leakgauge.randomness import seeded
from leakgauge.schedules import CosineDecay, WarmUp
from leakgauge.training import Training, Victim
from leakgauge.training.models import named_model
from leakgauge.training.train import accuracy, train
from leakgauge.version import VERSION
from quality import observe
from quality_cases import victim_and_next
from span import psnr_of

SEED = 0
TESTED = 2000
"""Test images that the accuracy of a trained victim is taken on."""
MARGIN = 1.0
"""Decibels by which another attack must be ahead of `best` to have beaten it."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Net:
    """A network, who could bring back most of its images, and a training after which it has learnt its task."""

    model: str
    rivals: tuple[str, ...]
    training: Training


@dataclass(frozen=True)
class Cell:
    """A victim: a network, trained or not, and how many images its update is of."""

    net: Net
    trained: bool = False
    batch_size: int = 1


SMOOTH, KINKED = ("idlg", "quasi_newton"), ("inverting_gradients", "grad_attack")
NETS: dict[str, Net] = {
    "LeNet": Net("lenet", SMOOTH, Training(3_000, 64, 0.05)),
    "ConvNet of width 16": Net("convnet:width=16", KINKED, Training(600, 64, 0.05)),
    "ResNet-20 of width 16": Net("resnet:depth=20,base_width=16", KINKED, Training(800, 64, 0.05)),
    "ViT": Net("vit, MultiheadAttention", ("idlg", "inverting_gradients"), Training(1_000, 64, 0.02)),
}
CELLS: dict[str, Cell] = {
    f"{name}{', trained' * trained}{f', batch {size}' * (size > 1)}": Cell(net, trained, size)
    for size in (1, 4, 16)
    for trained in (False, True)
    for name, net in NETS.items()
}


@dataclass(frozen=True)
class Bout:
    """One attack on one victim of a cell."""

    cell: str
    seconds: float
    victim: int
    attack: str

    def key(self) -> tuple[str, float, int, str]:
        return self.cell, self.seconds, self.victim, self.attack


def bouts(cells: Sequence[str], seconds: Sequence[float], victims: int, rivals: int) -> Iterator[Bout]:
    """One victim of every cell under every budget before the second of any."""
    for victim in range(victims):
        for budget in sorted(seconds):
            for cell in cells:
                for attack in ("best", *CELLS[cell].net.rivals[:rivals]):
                    yield Bout(cell, budget, victim, attack)


def victim_of(net: Net, trained: bool, dataset: Dataset) -> Victim:
    if net.model in architectures.ARCHITECTURES:
        module = architectures.build(net.model)
    else:
        module = named_model(net.model, dataset, seed=SEED)
    if not trained:
        return Victim(module.eval(), None)
    train(module, dataset.train, net.training, schedule=WarmUp(CosineDecay()), generator=seeded(SEED, "train"))
    return Victim(module.eval(), accuracy(module, dataset.test[:TESTED]))


@cache
def warm_up() -> None:
    """A first attack of one step, so that what is imported late counts for no contender."""
    module = build_model(Compact(width=2), (3, 9, 9), 2, seed=SEED)
    seen = observe(module.eval(), torch.zeros(1, 3, 9, 9), torch.zeros(1, dtype=torch.long))
    Best(Budget(steps=1))(seen, generator=seeded(SEED))


def fight(bout: Bout, victim: Victim, dataset: Dataset, first: int) -> Row:
    """What came back, scored against the truth and against the next victim; the attack sees neither."""
    truth, stranger = victim_and_next(dataset.test, first, bout.victim, CELLS[bout.cell].batch_size)
    seen = observe(victim.module, truth.inputs, truth.labels)
    warm_up()
    attack = with_budget(build(ATTACKS, bout.attack, kind="attack"), Budget(seconds=bout.seconds))
    started = time.process_time()
    found = attack(seen, generator=seeded(SEED, "contest", bout.cell, bout.victim))
    used = time.process_time() - started
    scores, nulls = ([] if found.inputs is None else psnr_of(found, one) for one in (truth, stranger))
    facts = {
        key: found.facts[key] for key in ("answered by", "steps", "loss", "left of the prior") if key in found.facts
    }
    return {
        "cell": bout.cell,
        "seconds": bout.seconds,
        "victim": bout.victim,
        "attack": bout.attack,
        "first": first,
        "psnr": scores,
        "null": nulls,
        "cpu_seconds": round(used, 1),
        "outcome": found.outcome.name,
        "facts": facts,
        "accuracy": victim.accuracy,
        "code": answering_code(),
    }


def standings(fought: Sequence[Row]) -> list[Row]:
    """A row for each cell and budget: `best` beside the strongest of the others, over the victims that both met."""
    rows = []
    for cell in CELLS:
        for seconds in sorted({one["seconds"] for one in fought if one["cell"] == cell}):
            own = [one for one in fought if (one["cell"], one["seconds"]) == (cell, seconds)]
            row = _standing(cell, own)
            if row is not None:
                rows.append(row)
    return rows


def _standing(cell: str, fought: Sequence[Row]) -> Row | None:
    means = {(one["attack"], one["victim"]): statistics.fmean(one["psnr"]) for one in fought if one["psnr"]}
    rivals = sorted({attack for attack, _ in means if attack != "best"})
    leads = {}
    for rival in rivals:
        met = [victim for attack, victim in means if attack == rival and ("best", victim) in means]
        if met:
            leads[rival] = statistics.fmean(means["best", one] - means[rival, one] for one in met), met
    if not leads:
        return None
    rival = min(leads, key=lambda name: leads[name][0])
    lead, met = leads[rival]
    ours, theirs = ([means[name, victim] for victim in met] for name in ("best", rival))
    nulls, floor = (
        statistics.fmean(score for one in fought if one["attack"] == name for score in one["null"])
        for name in ("best", rival)
    )
    return {
        "cell": cell,
        "accuracy": fought[0].get("accuracy"),
        "cpu_seconds": fought[0]["seconds"],
        "victims": len(met),
        "best": round(statistics.fmean(ours), 2),
        "strongest_rival": rival,
        "its_psnr": round(statistics.fmean(theirs), 2),
        "lead": round(lead, 2),
        "least_lead": round(min(one - other for one, other in zip(ours, theirs, strict=True)), 2),
        "null": round(nulls, 2),
        "its_null": round(floor, 2),
        # Who brings back no more than of an unrelated picture has beaten nobody.
        "beaten": lead < -MARGIN and statistics.fmean(theirs) > floor + MARGIN,
    }


def result(fought: Sequence[Row], first: int) -> dict[str, Any]:
    order = list(CELLS)
    kept = sorted(fought, key=lambda one: (order.index(one["cell"]), one["seconds"], one["victim"], one["attack"]))
    return {
        "title": "`best` against the strongest other attack of the catalogue: PSNR in dB",
        "command": f"python benchmarks/contest.py --first {first} --data-root DIR --out FILE",
        "version": VERSION,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "seed": SEED,
        "data": "CIFAR-10 test images",
        "margin": MARGIN,
        "rows": standings(kept),
        "attacks": kept,
    }


def kept_in(file: Path | None, first: int, cells: Sequence[str], seconds: Sequence[float]) -> list[Row]:
    """What was fought before on the same images: under these budgets in these cells by the same code, else by any."""
    if file is None or not file.is_file():
        return []
    fought: list[Row] = json.loads(file.read_text(encoding="utf-8"))["attacks"]
    code = answering_code()

    def is_asked(one: Row) -> bool:
        return one["cell"] in cells and one["seconds"] in seconds

    return [one for one in fought if one["first"] == first and (one["code"] == code or not is_asked(one))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=list(CELLS), choices=list(CELLS), metavar="CELL")
    parser.add_argument("--seconds", nargs="+", type=float, default=[5.0, 20.0, 60.0], help="CPU seconds per attack")
    parser.add_argument("--victims", type=int, default=3)
    parser.add_argument("--rivals", type=int, default=2, help="how many others meet `best` in each cell")
    parser.add_argument(
        "--first", type=int, default=5000, help="number of the first image; those below 100 are tuned on"
    )
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-root", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the results here, and continue from it")
    parser.add_argument("--json", action="store_true", help="print all that was found, for machines")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        fought = run(options)
    except LeakGaugeError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped; the same command continues." if options.out else "Stopped.", file=sys.stderr)
        return 130
    print(json.dumps(result(fought, options.first), indent=1) if options.json else table(standings(fought)))
    return 0


def run(options: argparse.Namespace) -> list[Row]:
    dataset = build_dataset(options.dataset, options.data_root)
    fought = kept_in(options.out, options.first, options.cells, options.seconds)
    done = {(one["cell"], one["seconds"], one["victim"], one["attack"]) for one in fought}
    planned = list(bouts(options.cells, options.seconds, options.victims, options.rivals))
    missing = [bout for bout in planned if bout.key() not in done]
    victim = cache(lambda net, trained: victim_of(net, trained, dataset))
    for number, bout in enumerate(missing, 1):
        cell = CELLS[bout.cell]
        row = fight(bout, victim(cell.net, cell.trained), dataset, options.first)
        fought.append(row)
        mean = f"{statistics.fmean(row['psnr']):.2f} dB" if row["psnr"] else "no result"
        words = f"{bout.cell}, {bout.seconds:g} s, victim {bout.victim}, {bout.attack}: {mean}"
        print(f"{number}/{len(missing)} {words}, {row['cpu_seconds']} CPU s", file=sys.stderr, flush=True)
        if options.out is not None:
            write_text(options.out, json.dumps(result(fought, options.first), indent=1, allow_nan=False) + "\n")
    return fought


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'cell':32}{'CPU s':>7}{'best':>8}{'rival':>8}{'lead':>8}  strongest rival"]
    for row in rows:
        numbers = f"{row['cpu_seconds']:7g}{row['best']:8.2f}{row['its_psnr']:8.2f}{row['lead']:+8.2f}"
        lines.append(f"{row['cell']:32}{numbers}  {row['strongest_rival']}{' BEATS best' * row['beaten']}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
