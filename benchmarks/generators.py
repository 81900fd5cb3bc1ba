"""What a step in pixels, and in the weights of an untrained generator, costs against the size of the batch.

    python benchmarks/generators.py                       # a table
    python benchmarks/generators.py --out FILE            # the rows, kept
    python benchmarks/generators.py --batches 8 32 --model resnet:depth=18,base_width=16,activation=sigmoid

Steps per second of CPU time of this process, the median over ``--rounds`` steps that are interleaved, so that a busy
moment hits all alike; memory is the peak of tensors that a step allocates. ``checkpointed`` is the generator that
computes its blocks again on the way back.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from leakgauge.attacks.matching import GradientMatching, Pixels, SignedAdam, TotalVariation
from leakgauge.attacks.matching.search import Search
from leakgauge.attacks.recipes import ci_net
from leakgauge.catalogue import MODELS
from leakgauge.config import build
from leakgauge.files import write_text
from leakgauge.models import build as build_model
from leakgauge.protocol import THREAT_MODELS, Federation, FedSGD, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Shape
from leakgauge.version import VERSION
from memory import peak_memory

MODEL = "lenet:convolutions=4,initial_range=None,width=32,batch_norm=True"
ATTACKS = {
    "pixels": GradientMatching(
        priors=(TotalVariation(),), parametrisation=Pixels(), optimiser=SignedAdam(), labels=None
    ),
    "generator": ci_net(),
    "generator, checkpointed": ci_net(checkpointed=True),
}
_CLASSES = 10


def started(model: str, batch_size: int, size: int) -> dict[str, Search]:
    """Every attack at its start, on one update of random images."""
    shape: Shape = (3, size, size)
    stream = seeded(0, "benchmark", batch_size)
    truth = Batch(
        torch.rand(batch_size, *shape, generator=stream), torch.randint(_CLASSES, (batch_size,), generator=stream)
    )
    module = build_model(build(MODELS, model, kind="model"), shape, _CLASSES, seed=0)
    learner, state = learner_and_state(module, mode="train")
    seen = simulate_round(
        Federation(learner, state, FedSGD()),
        truth,
        threat_model=THREAT_MODELS["informed"],
        defence=lambda client: client,
        generator=seeded(0),
    )
    return {name: attack.search([seen], generator=seeded(0)) for name, attack in ATTACKS.items()}


def measured(model: str, batch_size: int, size: int, rounds: int) -> list[dict[str, Any]]:
    searches = started(model, batch_size, size)
    memory = {name: peak_memory(search.step) for name, search in searches.items()}  # also warms up
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    for _ in range(rounds):
        for name, search in searches.items():
            began = time.process_time()
            search.step()
            seconds[name].append(time.process_time() - began)
    return [
        {
            "space": name,
            "batch_size": batch_size,
            "steps_per_second": round(1 / statistics.median(seconds[name]), 3),
            "peak_mib": round(memory[name] / 2**20, 2),
            "variables": search.state.candidate[0].numel(),
            "route": search.loss.evaluator.route,
        }
        for name, search in searches.items()
    ]


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--size", type=int, default=32, help="side of the images")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for batch_size in options.batches:
        for row in measured(options.model, batch_size, options.size, options.rounds):
            rows.append(row)
            print("{space:24} {batch_size:4d} {steps_per_second:10.2f} steps/s {peak_mib:10.1f} MiB".format(**row))
    if options.out is not None:
        described = {
            "command": f"python benchmarks/generators.py --model {options.model} --size {options.size} --batches "
            f"{' '.join(map(str, options.batches))} --rounds {options.rounds}",
            "version": VERSION,
            "torch": torch.__version__,
            "machine": platform.machine(),
            "rows": rows,
        }
        write_text(options.out, json.dumps(described, indent=1) + "\n")
    return rows


if __name__ == "__main__":
    main()
