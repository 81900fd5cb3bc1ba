"""What a step of each differentiation route costs, in training steps of the same model and batch, all in one run.

    python benchmarks/speed.py            # a table
    python benchmarks/speed.py --json     # the rows, for machines
    python benchmarks/speed.py --rounds 3 --cases lenet/1 compact/4

Rounds are interleaved (every route once per round) and each ratio is the median over rounds of the ratio within a
round, so that a busy moment of the machine hits numerator and denominator alike. The yardstick is one ordinary training
step: forward and backward for all parameters. ``plain`` is the attack step as usually written: ``backward()`` on a
distance that was built with ``create_graph``, which also computes second-order gradients for every parameter.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from leakgauge.attacks.matching import Cosine, DoubleBackward, FiniteDifference, ForwardOverReverse
from leakgauge.attacks.matching.differentiation import MatchingProblem
from leakgauge.catalogue import MODELS
from leakgauge.config import build
from leakgauge.models import build as build_model
from leakgauge.protocol import FedSGD, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.types import Batch
from leakgauge.version import VERSION

CASES = ("lenet/1", "compact/4", "convnet:width=16/1", "convnet:width=16/8", "resnet:depth=20,base_width=16/4")
ROUTES = (DoubleBackward(), ForwardOverReverse(), FiniteDifference())
RESTARTS = (8, 32)


@dataclass(frozen=True)
class Bench:
    """One model and batch: a training step, the attack step as usually written, and a problem for our routes."""

    train: Callable[[], object]
    plain: Callable[[], object]
    problem: MatchingProblem
    images: torch.Tensor


def prepare(case: str) -> Bench:
    name, _, batch_size = case.rpartition("/")
    count = int(batch_size)
    module = build_model(build(MODELS, name, kind="model"), (3, 32, 32), 10, seed=0).eval()
    learner, state = learner_and_state(module)
    generator = seeded(0, "speed")
    labels = torch.arange(count) % 10
    truth, images = (torch.rand(count, 3, 32, 32, generator=generator) for _ in range(2))
    observed = FedSGD().compute(learner, state, Batch(truth, labels))
    problem = MatchingProblem(learner, state, FedSGD(), observed, Cosine(), labels)
    train = partial(_train, module, images, labels)
    return Bench(train, partial(_plain, module, images, labels, observed), problem, images)


def _train(module: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    module.zero_grad(set_to_none=True)
    cross_entropy(module(images), labels).backward()


def _plain(
    module: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, observed: dict[str, torch.Tensor]
) -> torch.Tensor:
    candidate = images.clone().requires_grad_()
    params = dict(module.named_parameters())
    loss = cross_entropy(functional_call(module, params, (candidate,)), labels)
    gradients = torch.autograd.grad(loss, list(params.values()), create_graph=True)
    Cosine()(dict(zip(params, gradients)), observed).backward()
    module.zero_grad(set_to_none=True)
    return candidate


def milliseconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - started)


def measure(case: str, rounds: int) -> list[dict[str, object]]:
    bench = prepare(case)
    steps: dict[str, Callable[[], object]] = {"training step": bench.train, "plain": bench.plain}
    for route in ROUTES:
        steps[type(route).__name__] = partial(route.one, bench.problem, bench.images)
    exact = DoubleBackward().one(bench.problem, bench.images).gradient
    for run in steps.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, run in steps.items():
            times[name].append(milliseconds(run))
    rows: list[dict[str, object]] = []
    for name, own in times.items():
        row: dict[str, object] = {
            "case": case,
            "step": name,
            "ms": round(statistics.median(own), 3),
            "training_steps": _ratio(own, times["training step"]),
            "speed_up_over_plain": _ratio(times["plain"], own),
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
    for restarts in RESTARTS:
        starts = torch.rand(restarts, *bench.images.shape, generator=seeded(0, "restarts"))
        alone = partial(super(DoubleBackward, DoubleBackward()).many, bench.problem, starts, chunk=1)
        together = partial(DoubleBackward().many, bench.problem, starts, chunk=restarts)
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
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: list[dict[str, object]] = []
    for case in options.cases:
        print(f"measuring {case} ...", file=sys.stderr)
        rows += measure(case, options.rounds)
    if any(case == "lenet/1" for case in options.cases):
        rows += measure_restarts("lenet/1", max(3, options.rounds // 2))
    if options.json:
        setting = {"rounds": options.rounds, "threads": options.threads, "torch": torch.__version__}
        print(json.dumps({"command": "speed", "version": VERSION, "seed": 0, **setting, "rows": rows}, indent=1))
        return
    print(f"{'case':34} {'step':24} {'ms':>9} {'training steps':>15} {'x plain':>8} {'difference':>11}")
    for row in rows:
        ratio = row.get("training_steps", "")
        gain = row.get("speed_up_over_plain", row.get("speed_up_over_one_by_one", ""))
        difference = f"{row['relative_difference']:.1e}" if "relative_difference" in row else ""
        print(f"{row['case']:34} {row['step']:24} {row['ms']:9} {ratio:>15} {gain:>8} {difference:>11}")


if __name__ == "__main__":
    main()
