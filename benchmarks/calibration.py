"""How often an audit accuses an update that gives nothing of the private examples away: of other data altogether.

    python benchmarks/calibration.py --out benchmarks/results/calibration.json
    python benchmarks/calibration.py --updates 40        # a look

Each row is as many audits: the update, its three nulls and the crowd are of images that are not the private ones, drawn
anew each time; what a closed-form attack, or three steps of matching, returns is judged against the private ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leakgauge.attacks.base import Attack
from leakgauge.audit.crowd import crowd_size
from leakgauge.audit.grid import Round, grid
from leakgauge.audit.result import summarise_records
from leakgauge.audit.run import run_case
from leakgauge.audit.verdict import Verdict
from leakgauge.config import build_attack, build_dataset
from leakgauge.data import Dataset
from leakgauge.defences import NoDefence
from leakgauge.files import write_text
from leakgauge.metrics import Identification, summarise
from leakgauge.protocol import THREAT_MODELS, Federation, FedSGD, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch
from leakgauge.version import VERSION

NULLS = 3
CELLS = [
    ("digits", "linear_layer", 1),
    ("digits", "quasi_newton:steps=3", 4),
    ("digits", "quasi_newton:steps=3", 16),
]


def verdict_of(dataset: Dataset, attack: Attack, size: int, trial: int, *, seed: int) -> Verdict:
    """The verdict of one audit whose update knows nothing of the private examples."""
    pool = Batch(
        torch.cat([dataset.test.inputs, dataset.train.inputs]), torch.cat([dataset.test.labels, dataset.train.labels])
    )
    space = dataset.space
    order = torch.randperm(len(pool), generator=seeded(seed, "calibration", size, trial))
    private, *unrelated = (pool[part] for part in order[: (NULLS + 2) * size].split(size))
    crowd = pool[order[(NULLS + 2) * size :][: crowd_size(size, 99, space)]].inputs
    with torch.random.fork_rng():
        torch.manual_seed(trial)
        model = nn.Sequential(nn.Flatten(), nn.Linear(space.parts, 32), nn.ReLU(), nn.Linear(32, dataset.num_classes))
    federation = Federation(*learner_and_state(model), FedSGD(), space)
    audited = Round(unrelated[0], tuple(unrelated[1:]), crowd[:99], crowd=crowd)
    cases = grid(
        federation,
        [audited],
        defences={"none": NoDefence()},
        attacks={"attack": attack},
        threat_model=THREAT_MODELS["informed"],
        seed=seed + trial,
    )
    records = [run_case(replace(case, truth=private), {}) for case in cases]
    return summarise_records(records, {})["none"].verdict


def measure(name: str, words: str, size: int, updates: int, seed: int) -> dict[str, Any]:
    dataset, attack, began = build_dataset(name, None), build_attack(words), time.process_time()
    seen = Counter(verdict_of(dataset, attack, size, trial, seed=seed) for trial in range(updates))
    accused = sum(count for verdict, count in seen.items() if verdict.leaks)
    rate = summarise(torch.tensor([1.0] * accused + [0.0] * (updates - accused)), Identification())
    return {
        "dataset": name,
        "attack": words,
        "batch_size": size,
        "updates": updates,
        "accused": accused,
        "rate": rate.mean,
        "rate_low": rate.low,
        "rate_high": rate.high,
        "verdicts": {verdict.value: seen[verdict] for verdict in Verdict if seen[verdict]},
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=400, help="audits of each row")
    parser.add_argument("--rows", type=int, default=len(CELLS), help="only the first so many rows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="keep the rows here")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    command = (
        f"python benchmarks/calibration.py --updates {options.updates} --rows {options.rows} --seed {options.seed}"
    )
    rows: list[dict[str, Any]] = []
    for number, cell in enumerate(CELLS[: options.rows], start=1):
        print(f"{' '.join(map(str, cell))} ({number} of {options.rows}) ...", file=sys.stderr)
        rows.append(measure(*cell, options.updates, options.seed))
        print(json.dumps(rows[-1]), flush=True)
        if options.out is not None:
            result = {"command": command, "version": VERSION, "seed": options.seed, "rows": rows}
            write_text(options.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
