"""What it takes to restore labels in closed form, by the number of classes, examples and features.

    python benchmarks/labels.py                      # a table
    python benchmarks/labels.py --json               # the rows, for machines
    python benchmarks/labels.py --out FILE           # the rows, kept
    python benchmarks/labels.py --classes 10 --examples 64 --features 512 --rounds 1

Each head is synthetic: examples of a class share most of their features, which are not negative, and the weights are
small, as before training. The client's update is computed once, through the whole protocol. ``estimate`` is the rule
alone, from the update to a real number per class; ``restore`` is all of it, with the rounding to a batch and the labels
themselves. Times are medians over rounds that are interleaved: wall times, and for ``restore`` also the processor's, of
all threads together, which a busy machine changes least. ``recall`` is the share of labels restored, so that no time is
that of a failure.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import nn

from leakgauge.attacks.labels import ILRG, Alternating, CountRule
from leakgauge.files import write_text
from leakgauge.protocol import THREAT_MODELS, Federation, UpdateObservation, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.types import Batch
from leakgauge.version import VERSION

CLASSES, EXAMPLES, FEATURES = (10, 100, 1000), (64, 1024, 4096), (512, 2048)
RULES: tuple[CountRule, ...] = (ILRG(), Alternating())
_SPREAD = 0.1
"""Of the features within a class, against 1 between classes."""


def prepare(classes: int, examples: int, features: int) -> tuple[UpdateObservation, torch.Tensor]:
    """One update of a head and nothing else, whose features are the pixels, and the labels behind it."""
    generator = seeded(0, "labels", classes)
    centres = torch.rand(classes, features, generator=generator)
    labels = torch.randint(classes, (examples,), generator=generator)
    images = torch.rand(examples, features, generator=generator).mul_(_SPREAD).add_((1 - _SPREAD) * centres[labels])
    module = nn.Sequential(nn.Flatten(), nn.Linear(features, classes))
    nn.init.normal_(module[1].weight, std=1 / features, generator=generator)
    nn.init.zeros_(module[1].bias)
    learner, state = learner_and_state(module)
    seen = simulate_round(
        Federation(learner, state),
        Batch(images.view(examples, 1, 1, features), labels),
        threat_model=THREAT_MODELS["honest_but_curious"],
        defence=lambda client: client,
        generator=generator,
    )
    return seen, labels


def measure(classes: int, examples: int, features: int, rounds: int) -> list[dict[str, object]]:
    seen, labels = prepare(classes, examples, features)
    runs: dict[tuple[CountRule, str], Callable[[], object]] = {}
    for rule in RULES:
        runs[rule, "estimate"] = partial(_estimate, rule, seen)
        runs[rule, "restore"] = partial(_restore, rule, seen)
    for run in runs.values():
        run()
    times: dict[tuple[CountRule, str], list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(milliseconds(run))
    true = torch.bincount(labels, minlength=classes)
    rows: list[dict[str, object]] = []
    for rule in RULES:
        restored = torch.bincount(_restore(rule, seen), minlength=classes)
        rows.append(
            {
                "rule": type(rule).__name__,
                "classes": classes,
                "examples": examples,
                "features": features,
                "estimate_ms": _median(wall for wall, _ in times[rule, "estimate"]),
                "restore_ms": _median(wall for wall, _ in times[rule, "restore"]),
                "restore_cpu_ms": _median(cpu for _, cpu in times[rule, "restore"]),
                "recall": round(float(torch.minimum(true, restored).sum()) / examples, 4),
            }
        )
    return rows


def _estimate(rule: CountRule, seen: UpdateObservation) -> torch.Tensor:
    return rule.estimate(seen, generator=seeded(0))


def _restore(rule: CountRule, seen: UpdateObservation) -> torch.Tensor:
    return rule.restore(seen, generator=seeded(0))


def milliseconds(run: Callable[[], object]) -> tuple[float, float]:
    """By the clock on the wall, and of the processor."""
    started, worked = time.perf_counter(), time.process_time()
    run()
    return 1e3 * (time.perf_counter() - started), 1e3 * (time.process_time() - worked)


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", nargs="+", type=int, default=CLASSES)
    parser.add_argument("--examples", nargs="+", type=int, default=EXAMPLES)
    parser.add_argument("--features", nargs="+", type=int, default=FEATURES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="also write the rows to this file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    sizes = list(product(options.features, options.classes, options.examples))
    rows: list[dict[str, object]] = []
    for number, (features, classes, examples) in enumerate(sizes, start=1):
        print(f"measuring C={classes}, K={examples}, m={features} ({number} of {len(sizes)}) ...", file=sys.stderr)
        rows += measure(classes, examples, features, options.rounds)
    chosen = {name: list(getattr(options, name)) for name in ("classes", "examples", "features")}
    defaults = {"classes": CLASSES, "examples": EXAMPLES, "features": FEATURES}
    words = [f"--{name} {' '.join(map(str, one))}" for name, one in chosen.items() if tuple(one) != defaults[name]]
    command = " ".join(
        ["python benchmarks/labels.py", *words, f"--rounds {options.rounds} --threads {options.threads}"]
    )
    setting = {
        "rounds": options.rounds,
        "threads": options.threads,
        "torch": str(torch.__version__),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    result = json.dumps({"command": command, "version": VERSION, "seed": 0, **setting, "rows": rows}, indent=1)
    if options.out is not None:
        write_text(options.out, result + "\n")
    if options.json:
        print(result)
        return
    names = list(rows[0])
    print(" ".join(f"{name:>14}" for name in names))
    for row in rows:
        print(" ".join(f"{row[name]:>14}" for name in names))


if __name__ == "__main__":
    main()
