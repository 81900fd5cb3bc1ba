"""What comes back from each way a client trains, beside what comes back from one plain gradient.

    python benchmarks/clients.py                            # a table
    python benchmarks/clients.py --out FILE                 # the rows, kept
    python benchmarks/clients.py --clients fedsgd --steps 50

The same photographs, model and attack for all; only the client differs. PSNR in dB, the mean over the images, each
against what the client trained on; ``null`` is the same of an unrelated update, ``sgd`` what the same attack gets of
plain SGD, of one step or of four. Budgets are steps, so that a busy machine changes nothing. Rows that the file
holds are kept; the others are added.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from leakgauge.catalogue import MODELS
from leakgauge.config import build, build_attack, build_client, build_dataset, build_loss
from leakgauge.data import Dataset
from leakgauge.files import finite, write_text
from leakgauge.fingerprint import code_fingerprint
from leakgauge.metrics import PSNR, align
from leakgauge.protocol import THREAT_MODELS, Federation, learner_and_state
from leakgauge.protocol.round import disclose
from leakgauge.randomness import seeded
from leakgauge.training.models import model_for
from leakgauge.types import Batch
from leakgauge.version import VERSION

STEP = "fedavg:epochs=1,batch_size=8,learning_rate=0.01"
SEVERAL = "fedavg:epochs=2,batch_size=1,learning_rate=0.01"
FAST = "learning_rate=0.001"
CLIENTS: dict[str, str] = {
    "one gradient": "fedsgd",
    "SGD, one step": STEP,
    "SGD, four steps": SEVERAL,
    "momentum": f"{SEVERAL},momentum=0.9",
    "Nesterov, weight decay": f"{SEVERAL},momentum=0.9,nesterov=True,weight_decay=0.0005",
    "FedProx": f"{SEVERAL},proximal=0.1",
    "clipped by norm": f"{SEVERAL},clip_norm=1.0",
    "clipped by value": f"{SEVERAL},clip_value=0.01",
    "accumulated": f"{SEVERAL},accumulate=2",
    "Adam, one step": f"fedavg:epochs=1,batch_size=8,{FAST},optimiser=adam",
    "AdamW, one step": f"fedavg:epochs=1,batch_size=8,{FAST},optimiser=adamw",
    "Adam, two steps": f"fedavg:epochs=1,batch_size=1,{FAST},optimiser=adam",
    "Adam, four steps": f"fedavg:epochs=2,batch_size=1,{FAST},optimiser=adam",
    "augmented": "fedsgd+augmentation:flip=0.5,crop=4,colour=0.2",
    "head at home": "fedsgd+sharing:without=['head.*']",
    "head alone": "fedsgd+sharing:only=['head.*']",
    "float16": "fedsgd+transport:dtype=float16",
    "bfloat16": "fedsgd+transport:dtype=bfloat16",
    "labels smoothed": "fedsgd",
    "loss summed": "fedsgd",
}
"""By the name a row has; the words are those of ``--local-update``."""

SEVERAL_STEPS = frozenset(
    name for name, words in CLIENTS.items() if words.startswith(SEVERAL) and name != "accumulated"
) | {"Adam, two steps", "Adam, four steps"}
"""Beside SGD of four steps; all others beside that of one."""

LOSSES = {"labels smoothed": "cross_entropy:label_smoothing=0.1", "loss summed": "cross_entropy:reduction=sum"}


def measured(name: str, dataset: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """What came back from one kind of client, and from the null."""
    model = model_for(dataset, build(MODELS, options.model, kind="model"), seed=0)
    learner, state = learner_and_state(model, build_loss(LOSSES.get(name, "cross_entropy")))
    federation = Federation(learner, state, build_client(CLIENTS[name]))
    attack = build_attack(f"{options.attack}:steps={options.steps}")
    scores: dict[str, list[float]] = {"found": [], "null": []}
    started = time.process_time()
    for number in range(options.batches):
        truth, unrelated = (_batch(dataset, options.batch_size, 2 * number + other) for other in (0, 1))
        trained_on: Batch | None = None
        for kind, batch in (("found", truth), ("null", unrelated)):
            if kind == "null" and options.no_null:
                continue
            sent = federation.local_update.send(learner, state, batch, generator=seeded(0, "client"))
            seen = disclose(federation, lambda client: client, batch, sent, threat_model=THREAT_MODELS["informed"])
            trained_on = trained_on or replace(truth, inputs=sent.encoding.batch.inputs)
            found = attack(seen, generator=seeded(0, "attack"))
            scores[kind] += PSNR()(align(found, trained_on)).tolist()
    mean = {kind: sum(values) / len(values) if values else float("nan") for kind, values in scores.items()}
    return {
        "client": name,
        "local_update": CLIENTS[name],
        "loss": LOSSES.get(name, "cross_entropy"),
        "psnr": round(mean["found"], 2),
        "null": None if finite(mean["null"]) is None else round(mean["null"], 2),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def _batch(dataset: Dataset, size: int, number: int) -> Batch:
    order = torch.randperm(len(dataset.test), generator=seeded(0, "benchmark"))
    return dataset.test[order[number * size : (number + 1) * size]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", nargs="+", default=list(CLIENTS), choices=list(CLIENTS))
    parser.add_argument("--model", default="compact")
    parser.add_argument("--attack", default="best")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--no-null", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    dataset, rows = build_dataset("photos", None), []
    if options.out is not None and options.out.is_file():
        rows = json.loads(options.out.read_text(encoding="utf-8"))["rows"]
    for name in options.clients:
        if not any(row["client"] == name for row in rows):
            rows.append(measured(name, dataset, options))
            print(f"{name:24} {rows[-1]['psnr']:6.1f} dB, null {rows[-1]['null']}", flush=True)
        if options.out is not None:
            write_text(options.out, json.dumps(_result(rows, options), indent=1, allow_nan=False) + "\n")


def _result(rows: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    found = {row["client"]: row["psnr"] for row in rows}
    beside = {name: "SGD, four steps" if name in SEVERAL_STEPS else "SGD, one step" for name in CLIENTS}
    rows = [row | {"sgd": found.get(beside[row["client"]])} for row in rows]
    settings = {key: value for key, value in vars(options).items() if key not in ("out", "clients")}
    return {
        "title": f"Clients: PSNR in dB of {options.batch_size} images, {options.model}, {options.steps} steps",
        "command": f"python benchmarks/clients.py --steps {options.steps}{' --no-null' if options.no_null else ''}",
        "version": VERSION,
        "code": code_fingerprint(),
        "seed": 0,
        "python": platform.python_version(),
        "torch": torch.__version__,
        **settings,
        "rows": sorted(rows, key=lambda row: list(CLIENTS).index(row["client"])),
    }


if __name__ == "__main__":
    main()
