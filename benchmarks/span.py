"""What the span of a gradient gives away, by feature maps or by search: `best` with a budget, network by network.

    python benchmarks/span.py --data-root DIR                                  # a table of all cells
    python benchmarks/span.py --data-root DIR --out FILE --victims 20          # the rows, kept
    python benchmarks/span.py --data-root DIR --out FILE --cells "ResNet-18"   # some of them
    python benchmarks/span.py --data-root DIR --states FOLDER                  # trained by trained_victim.py

Networks in eval mode, untrained but for the cells that say how long, CIFAR-10 test images from --first on, CPU seconds,
one thread. A victim is a batch of images: the PSNR of each, and the null, what came back scored against the next
victim's images. Victims that the file holds are kept and the others are added, so that a run may be stopped at any
time; a row sums up a cell.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.config import build_client, build_dataset
from leakgauge.data import Dataset
from leakgauge.defences import DPSGD, Clipping, GaussianNoise, NoDefence, Pruning, Soteria
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.metrics import PSNR, align
from leakgauge.protocol import THREAT_MODELS, Federation, UpdateObservation, learner_and_state, simulate_round
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.randomness import seeded
from leakgauge.training.models import named_model
from leakgauge.training.train import accuracy
from leakgauge.types import Batch, Reconstruction
from leakgauge.version import VERSION

SEED = 0
KAIMING = "initialisation=kaiming"
Defence = Callable[[LocalUpdate], LocalUpdate]


@dataclass(frozen=True)
class Cell:
    """One network, batch size, client and defence, with the CPU seconds that an attack on it gets."""

    model: str
    seconds: float
    batch_size: int = 1
    client: str = "fedsgd"
    threat_model: str = "informed"
    noise: float | None = None
    """Of Gaussian noise, as a share of the root mean square of the gradient."""
    defence: Defence = NoDefence()
    epochs: int = 0
    """Of training before the round."""
    weights: str | None = None
    """The file in the folder of trained networks, where the training was another's."""
    curve: tuple[str, float] | None = None
    """What the cell is a point of, and where on it."""


TRAINED = "resnet:depth=18,base_width=32"
CELLS: dict[str, Cell] = {
    "ResNet20-4": Cell("resnet20_4", 30, curve=("width", 64)),
    "ResNet-18": Cell("resnet:depth=18", 30, curve=("batch", 1)),
    "ConvNet-64": Cell("convnet", 60),
    "ResNet-18, batch 2": Cell("resnet:depth=18", 150, 2, curve=("batch", 2)),
    "ResNet-18, batch 4": Cell("resnet:depth=18", 300, 4, curve=("batch", 4)),
    "ResNet-18, batch 8": Cell("resnet:depth=18", 900, 8, curve=("batch", 8)),
    "ResNet-18, batch 16": Cell("resnet:depth=18", 3600, 16, curve=("batch", 16)),
    "ResNet-18, Kaiming": Cell(f"resnet:depth=18,{KAIMING}", 100),
    "ResNet20-4, Kaiming": Cell(f"resnet:depth=20,{KAIMING}", 240),
    "ResNet20-4, labels restored": Cell("resnet20_4", 30, threat_model="honest_but_curious"),
    "ResNet20-4, clipped": Cell("resnet20_4", 30, defence=Clipping(0.1)),
    "ResNet20-4, float16": Cell("resnet20_4", 30, client="fedsgd+transport:dtype=float16"),
    "ResNet20-4, noise 0.1 %": Cell("resnet20_4", 30, noise=1e-3, curve=("noise", 1e-3)),
    "ResNet20-4, noise 1 %": Cell("resnet20_4", 30, noise=1e-2, curve=("noise", 1e-2)),
    "ResNet20-4, noise 10 %": Cell("resnet20_4", 30, noise=1e-1, curve=("noise", 1e-1)),
    "ResNet20-4, half pruned": Cell("resnet20_4", 30, defence=Pruning(0.5)),
    "ResNet20-4, Soteria": Cell("resnet20_4", 30, defence=Soteria()),
    "ResNet20-4, DP-SGD": Cell("resnet20_4", 30, defence=DPSGD(max_grad_norm=1.0, noise_multiplier=0.1)),
    "ResNet20-4, four local steps": Cell("resnet20_4", 30, client="fedavg:epochs=4,batch_size=1,learning_rate=0.001"),
    **{
        f"ResNet-20, width {width}": Cell(f"resnet:depth=20,base_width={width}", 30, curve=("width", width))
        for width in (16, 32, 48)
    },
    "ResNet-20 of width 16, published weights": Cell(
        "resnet:depth=20,base_width=16", 100, weights="resnet20-16-cifar10.safetensors"
    ),
    **{
        f"ResNet-20 of width 16, published weights, batch {size}": Cell(
            "resnet:depth=20,base_width=16", 300, size, weights="resnet20-16-cifar10.safetensors"
        )
        for size in (4, 32)
    },
    **{
        f"ResNet-18 of width 32, {epochs} epochs": Cell(TRAINED, 100, epochs=epochs, curve=("training", epochs))
        for epochs in (0, 1, 3, 6, 12)
    },
}


def victim_module(cell: Cell, dataset: Dataset, states: Path | None) -> nn.Module:
    file = cell.weights or (f"epoch{cell.epochs}.safetensors" if cell.epochs else None)
    state = str(states / file) if states is not None and file is not None else None
    return named_model(cell.model, dataset, seed=SEED, state=state)


def observe(cell: Cell, dataset: Dataset, victim: Batch, states: Path | None) -> UpdateObservation:
    module = victim_module(cell, dataset, states)
    learner, state = learner_and_state(module.eval())
    federation = Federation(learner, state, build_client(cell.client))
    defence = cell.defence
    if cell.noise is not None:
        gradient = torch.cat([one.flatten() for one in learner.gradient(state, victim).values()])
        defence = GaussianNoise(cell.noise * float(gradient.square().mean().sqrt()))
    return simulate_round(
        federation,
        victim,
        threat_model=THREAT_MODELS[cell.threat_model],
        defence=defence,
        generator=seeded(SEED, "client"),
    )


def measure(name: str, dataset: Dataset, first: int, number: int, states: Path | None = None) -> dict[str, Any]:
    """One victim of a cell: what came back, beside it and beside the next victim."""
    from leakgauge.attacks.recipes import best

    cell = CELLS[name]
    places = [range(first + at * cell.batch_size, first + (at + 1) * cell.batch_size) for at in (number, number + 1)]
    victim, stranger = (dataset.test[torch.tensor(place)] for place in places)
    seen = observe(cell, dataset, victim, states)
    started = time.process_time()
    found = best(seconds=cell.seconds)(seen, generator=seeded(SEED, "attack", number))
    return {
        "cell": name,
        "victim": number,
        "images": list(places[0]),
        "psnr": psnr_of(found, victim),
        "null": psnr_of(found, stranger),
        "cpu_seconds": round(time.process_time() - started, 1),
        "outcome": found.outcome.name,
        "facts": {key: found.facts[key] for key in ("answered by", "residual", "steps") if key in found.facts},
    }


def psnr_of(found: Reconstruction, truth: Batch) -> list[float]:
    scores: Tensor = PSNR()(align(found, truth))
    return [round(float(one), 2) for one in scores.flatten()]


def accuracy_of(cell: Cell, dataset: Dataset, states: Path | None) -> float | None:
    """Of the victim's network on the test images; None of one that was not trained."""
    if states is None or not (cell.epochs or cell.weights):
        return None
    if cell.weights:
        return accuracy(victim_module(cell, dataset, states).eval(), dataset.test[:])
    kept = json.loads((states / "training.json").read_text(encoding="utf-8"))["rows"]
    return next(row["accuracy"] for row in kept if row["epoch"] == cell.epochs)


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each cell that has rows."""
    lines = []
    for name, cell in CELLS.items():
        own = [row for row in rows if row["cell"] == name]
        if own:
            found, nulls = ([score for row in own for score in row[key]] for key in ("psnr", "null"))
            lines.append(
                {
                    "cell": name,
                    "batch_size": cell.batch_size,
                    "curve": cell.curve,
                    "accuracy": own[0].get("accuracy"),
                    "cpu_seconds": cell.seconds,
                    "victims": len(own),
                    "images": len(found),
                    "median": round(statistics.median(found), 1),
                    "least": min(found),
                    "above_30": sum(score > 30 for score in found),
                    "null": round(statistics.median(nulls), 1),
                    "greatest_null": max(nulls),
                }
            )
    return lines


def result(rows: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    order = list(CELLS)
    victims = sorted(rows, key=lambda row: (order.index(row["cell"]), row["victim"]))
    return {
        "title": "Feature maps and spans within `best`: PSNR in dB",
        "command": f"python benchmarks/span.py --victims {options.victims} --first {options.first} --data-root DIR",
        "version": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "seed": SEED,
        "data": "CIFAR-10 test images",
        "rows": summary(victims),
        "victims": victims,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=list(CELLS), choices=list(CELLS))
    parser.add_argument("--victims", type=int, default=20)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument(
        "--states", type=Path, help="what trained_victim.py and resnet20_weights.py wrote; else such cells are left out"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    dataset, rows = build_dataset(options.dataset, options.data_root), list[dict[str, Any]]()
    if options.out is not None and options.out.is_file():
        rows = json.loads(options.out.read_text(encoding="utf-8"))["victims"]
    code = answering_code()
    untrained = [name for name, cell in CELLS.items() if not (cell.epochs or cell.weights)]
    cells = [name for name in options.cells if options.states is not None or name in untrained]
    accuracies = {name: accuracy_of(CELLS[name], dataset, options.states) for name in cells}
    for number in range(options.victims):  # one victim of every cell before the second of any
        for name in cells:
            if any((row["cell"], row["victim"]) == (name, number) for row in rows):
                continue
            row = {**measure(name, dataset, options.first, number, options.states), "code": code}
            row["accuracy"] = accuracies[name]
            rows.append(row)
            print(f"{name:32} {row['psnr']} dB, null {row['null']}, {row['cpu_seconds']} s", flush=True)
            if options.out is not None:
                text = json.dumps(result(rows, options), indent=1, allow_nan=False)
                write_text(options.out, text + "\n")


if __name__ == "__main__":
    main()
