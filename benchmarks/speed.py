"""What a step of each differentiation route costs, in training steps of the same model and batch, all in one run.

    python benchmarks/speed.py                      # a table
    python benchmarks/speed.py --json               # the rows, for machines
    python benchmarks/speed.py --out FILE           # the rows, kept
    python benchmarks/speed.py --rounds 3 --cases lenet/1 convnet/8

Rounds are interleaved (every step once per round) and each ratio is the median over rounds of the ratio within a
round, so that a busy moment of the machine hits numerator and denominator alike; times are CPU times of this process.
The yardstick is one ordinary training step: forward and backward for all parameters. ``2020 method`` is a whole
iteration of ``baseline.py``: ``backward()`` through ``create_graph``, which also computes second-order gradients for
every parameter, then total variation, sign, Adam and box. ``..., whole iteration`` is the same with our routes; the
plain route names are the matching loss and its derivative alone. Memory is the peak of tensors beyond what is there
before the step.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from baseline import make_step
from leakgauge.attacks.matching import (
    AnisotropicTotalVariation,
    Budget,
    Cosine,
    Differentiation,
    DoubleBackward,
    FrozenDifference,
    GradientMatching,
    SignedAdam,
    StepDecay,
    Tangent,
)
from leakgauge.attacks.matching.differentiation import Rows
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.catalogue import MODELS
from leakgauge.config import build
from leakgauge.files import write_text
from leakgauge.models import build as build_model
from leakgauge.protocol import THREAT_MODELS, Federation, learner_and_state, simulate_round
from leakgauge.randomness import seeded
from leakgauge.types import Batch
from leakgauge.version import VERSION
from memory import peak_memory

CASES = ("lenet/1", "convnet/1", "convnet/8", "resnet20_4/4", "resnet:depth=18/4")
ROUTES: tuple[Differentiation, ...] = (DoubleBackward(), Tangent(), FrozenDifference())
RESTARTS = (8, 32)
YARDSTICK, BASELINE = "training step", "2020 method"
_TV = 1e-2


@dataclass(frozen=True)
class Bench:
    """One model and batch: a training step, the 2020 iteration, and a problem for our routes."""

    steps: dict[str, Callable[[], object]]
    problem: MatchingProblem
    images: Tensor


def prepare(case: str) -> Bench:
    name, _, batch_size = case.rpartition("/")
    count = int(batch_size)
    module = build_model(build(MODELS, name, kind="model"), (3, 32, 32), 10, seed=0).eval()
    learner, state = learner_and_state(module)
    generator = seeded(0, "speed")
    labels = torch.arange(count) % 10
    truth, images = (torch.rand(count, 3, 32, 32, generator=generator) for _ in range(2))
    seen = simulate_round(
        Federation(learner, state),
        Batch(truth, labels),
        threat_model=THREAT_MODELS["informed"],
        defence=lambda client: client,
        generator=generator,
    )
    attack = GradientMatching(
        priors=(AnisotropicTotalVariation(_TV),), optimiser=SignedAdam(0.025, StepDecay()), budget=Budget(steps=10**6)
    )
    steps: dict[str, Callable[[], object]] = {
        YARDSTICK: partial(_train, module, images, labels),
        BASELINE: make_step(module, images, labels, dict(seen.update.params), _TV),
    }
    problem = attack.problem(seen, generator=seeded(0, "labels"))
    for route in ROUTES:
        title = type(route).__name__
        steps[title] = partial(route.matcher(problem, images), images, labels)
        search = replace(attack, differentiation=route).search([seen], generator=seeded(0))
        steps[f"{title}, whole iteration"] = search.step
    return Bench(steps, problem, images)


def _train(module: torch.nn.Module, images: Tensor, labels: Tensor) -> None:
    module.zero_grad(set_to_none=True)
    cross_entropy(module(images), labels).backward()


def milliseconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return 1e3 * (time.process_time() - started)


def measure(case: str, rounds: int) -> list[dict[str, object]]:
    bench = prepare(case)
    for run in bench.steps.values():
        run()
        run()  # the second step of Adam is the first usual one
    times: dict[str, list[float]] = {name: [] for name in bench.steps}
    for _ in range(rounds):
        for name, run in bench.steps.items():
            times[name].append(milliseconds(run))
    exact = DoubleBackward().one(bench.problem, bench.images).gradient
    rows: list[dict[str, object]] = []
    for name, own in times.items():
        row: dict[str, object] = {
            "case": case,
            "step": name,
            "ms": round(statistics.median(own), 3),
            "training_steps": _ratio(own, times[YARDSTICK]),
            "speed_up_over_2020": _ratio(times[BASELINE], own) if "iteration" in name or name == BASELINE else None,
            "peak_megabytes": round(peak_memory(bench.steps[name]) / 1e6, 2),
        }
        if (route := next((route for route in ROUTES if type(route).__name__ == name), None)) is not None:
            gradient = route.one(bench.problem, bench.images).gradient
            row["relative_difference"] = float((gradient - exact).norm() / exact.norm())
        rows.append(row)
    return rows


def measure_restarts(case: str, rounds: int) -> list[dict[str, object]]:
    """Trials per second of restarts evaluated together, against one after another."""
    bench = prepare(case)
    rows: list[dict[str, object]] = []
    problem, route = bench.problem, DoubleBackward()
    for restarts in RESTARTS:
        images = torch.rand(restarts, *bench.images.shape, generator=seeded(0, "restarts"))
        starts = Rows(images, problem.labels.expand(restarts, *problem.labels.shape))
        alone = partial(route.rowwise(problem, bench.images, chunk=1), starts, Cosine())
        together = partial(route.rowwise(problem, bench.images, chunk=restarts), starts, Cosine())
        alone(), together()
        times = [(milliseconds(alone), milliseconds(together)) for _ in range(rounds)]
        rows.append(
            {
                "case": case,
                "step": f"{restarts} restarts together",
                "ms": round(statistics.median(both[1] for both in times) / restarts, 3),
                "speed_up_over_one_by_one": round(statistics.median(one / both for one, both in times), 3),
            }
        )
    return rows


def _ratio(upper: list[float], lower: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(upper, lower, strict=True)), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="MODEL/BATCH")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=1, help="one is steadiest on a busy machine")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: list[dict[str, object]] = []
    for number, case in enumerate(options.cases, start=1):
        print(f"measuring {case} ({number} of {len(options.cases)}) ...", file=sys.stderr)
        rows += measure(case, options.rounds)
    if "lenet/1" in options.cases:
        rows += measure_restarts("lenet/1", max(3, options.rounds // 2))
    setting = {
        "rounds": options.rounds,
        "threads": options.threads,
        "torch": str(torch.__version__),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    command = f"python benchmarks/speed.py --rounds {options.rounds} --threads {options.threads}"
    result = json.dumps({"command": command, "version": VERSION, "seed": 0, **setting, "rows": rows}, indent=1)
    if options.out is not None:
        write_text(options.out, result + "\n")
    if options.json:
        print(result)
        return
    print(f"{'case':20} {'step':34} {'ms':>9} {'training steps':>15} {'x faster':>9} {'peak MB':>8} {'difference':>11}")
    for row in rows:
        gain = row.get("speed_up_over_2020") or row.get("speed_up_over_one_by_one") or ""
        difference = f"{row['relative_difference']:.1e}" if "relative_difference" in row else ""
        print(
            f"{row['case']:20} {row['step']:34} {row['ms']:9} {row.get('training_steps', ''):>15} {gain:>9} "
            f"{row.get('peak_megabytes', ''):>8} {difference:>11}"
        )


if __name__ == "__main__":
    main()
