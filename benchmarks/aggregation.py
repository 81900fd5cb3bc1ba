"""What survives in the sum of m clients' updates, images and labels, where the server is honest.

    python benchmarks/aggregation.py                # a table
    python benchmarks/aggregation.py --out FILE     # the rows, kept; those in the file are not run again
    python benchmarks/aggregation.py --clients 1 2 --rounds 1

Embedded digits through the untrained compact network; the server sees the mean of the updates of m clients and nothing
else, and does not know the labels. Images: one of each client, by the attack of recorded rounds, whose steps are the
same for every m. Labels: four of each client, by the best rule. ``identified`` is the share of all clients' images that
are nearer to what came back than 99 others are; ``labels`` the share of all clients' labels that are restored,
``guess`` what labels drawn at random would score. Nulls are unrelated updates held against the same examples.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from leakgauge.audit.execute import execute
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.audit.result import Finding
from leakgauge.files import finite, write_text
from leakgauge.fingerprint import answering_code
from leakgauge.version import VERSION

CLIENTS = (1, 2, 4, 8, 16, 32)
LABELS_EACH = 4
MOST_PRIVATE = 350
"""Digits that may be private: the test split has few more."""
STEPS = 300


def measured(clients: int, rounds: int) -> dict[str, Any]:
    """What comes back of the mean of so many clients."""
    began = time.process_time()
    rounds = min(rounds, MOST_PRIVATE // (clients * LABELS_EACH))
    labels = _audit(clients, LABELS_EACH, "best_labels", rounds)
    row: dict[str, Any] = {"clients": clients, "updates": rounds, "labels_each": LABELS_EACH}
    row |= _scores(labels, "label_recall", "labels") | {"guess": _guess(labels)}
    images = _audit(clients, 1, "quasi_newton", rounds)
    row |= (
        {"images_each": 1, "steps": STEPS}
        | _scores(images, "identification", "identified")
        | _scores(images, "psnr", "psnr")
    )
    return row | {"cpu_seconds": round(time.process_time() - began, 1), "code": answering_code()}


def _audit(clients: int, each: int, attack: str, rounds: int) -> Finding:
    defence = f"secure_aggregation:clients={clients}"
    plan = AuditPlan(
        dataset="digits",
        model="compact:width=16",
        train_steps=0,
        batch_size=clients * each,
        rounds=rounds,
        defences=(defence,),
        attacks=(attack,),
        threat_model="honest_but_curious",
        steps=STEPS,
        nulls=rounds,
    )
    return execute(prepare(plan), None)[defence]


def _scores(found: Finding, metric: str, name: str) -> dict[str, Any]:
    one = found.measured(metric)
    if one is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None, f"{name}_null": None}
    low, high = one.attack.low, one.attack.high
    ends = {f"{name}_low": finite(low), f"{name}_high": finite(high), f"{name}_null": finite(one.null.mean)}
    return {name: finite(one.attack.mean)} | ends


def _guess(found: Finding) -> float | None:
    one = found.measured("label_recall")
    return None if one is None else finite(one.guess)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    kept = {}
    if options.out is not None and options.out.is_file():
        kept = {row["clients"]: row for row in json.loads(options.out.read_text("utf-8"))["rows"]}
    for clients in options.clients:
        if clients not in kept:
            kept[clients] = measured(clients, options.rounds)
        print(json.dumps(kept[clients]), flush=True)
        if options.out is not None:
            write_text(options.out, json.dumps(result([kept[m] for m in sorted(kept)]), indent=1) + "\n")


def result(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The file that is kept."""
    return {
        "title": "Secure aggregation over m clients, the server being honest: what survives in the sum",
        "command": "python benchmarks/aggregation.py --out benchmarks/results/aggregation.json",
        "version": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "rows": list(rows),
    }


if __name__ == "__main__":
    main()
