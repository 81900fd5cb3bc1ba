"""What a step of each route costs on each architecture, in training steps of the same model and batch.

    python benchmarks/architectures_speed.py                    # measure every architecture and keep the rows
    python benchmarks/architectures_speed.py --only vit         # those whose name has this
    python benchmarks/architectures_speed.py --show             # the table of what was measured

A training step is forward and backward for all parameters. A step of a route is the matching loss and its derivative in
the images: ``exact`` by tangent sweeps, ``frozen`` by a frozen difference, ``double backward`` by autograd for images
alone. The peers' ways are ``double backward, everything``, ``backward()`` through ``create_graph`` into all parameters
as published code has it, and ``finite differences``, central and useless on networks that switch. Rounds are
interleaved, times are CPU times of this process at one thread, each ratio is taken within a round; the median over
rounds stands with its quartiles. ``difference`` is how far the exact derivative is from double backward in float64.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from architectures import ARCHITECTURES, CONVOLUTIONAL, TRANSFORMERS, build
from leakgauge import params as tree
from leakgauge.attacks.matching import Cosine, DoubleBackward, FiniteDifference, FrozenDifference, Tangent
from leakgauge.attacks.matching.differentiation import Differentiation
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.protocol import FedSGD, learner_and_state
from leakgauge.protocol.learner import Learner
from leakgauge.randomness import seeded
from leakgauge.types import Batch, ModelState, ParamTree
from leakgauge.version import VERSION

RESULTS = Path(__file__).parent / "results" / "architectures-speed.json"
YARDSTICK, PEERS = "training step", "double backward, everything"
ROUTES: dict[str, Differentiation] = {
    "exact": Tangent(),
    "frozen": FrozenDifference(),
    "double backward": DoubleBackward(),
    "finite differences": FiniteDifference(),
}
LIMITS = {"convolutional": {"exact": 2.5, "frozen": 2.0}, "transformer": {"exact": 3.0, "frozen": 3.0}, "other": {}}
"""What a step is to cost at most, by kind of network."""
BATCHES = (8,)
SHORTEST = 0.03
"""Seconds of CPU time of one measurement; a step that is shorter is repeated within it."""


def pose(module: nn.Module, count: int) -> tuple[MatchingProblem, Tensor]:
    """A matching problem on random images, and a candidate."""
    learner, state = learner_and_state(module)
    generator = seeded(0, "architectures speed")
    truth, images = (torch.rand(count, 3, 32, 32, generator=generator).to(state.dtype) for _ in range(2))
    labels = torch.arange(count) % 10
    observed = tree.map_tensors(Tensor.detach, learner.gradient(state, Batch(truth, labels)))
    return MatchingProblem(learner, state, FedSGD(), observed, Cosine(), labels), images


def steps_of(module: nn.Module, count: int) -> dict[str, Callable[[], object]]:
    problem, images = pose(module, count)
    steps: dict[str, Callable[[], object]] = {YARDSTICK: partial(_train, module, images, problem.labels)}
    for title, route in ROUTES.items():
        steps[title] = partial(route.resolve(problem, images).matcher(problem, images), images, problem.labels)
    graph = DoubleBackward().resolve(problem, images).linearise(problem, images)
    steps[PEERS] = partial(_everything, graph.learner, problem.state, problem.observed, images, problem.labels)  # type: ignore[attr-defined]
    return steps


def _train(module: nn.Module, images: Tensor, labels: Tensor) -> None:
    module.zero_grad(set_to_none=True)
    cross_entropy(module(images), labels).backward()


def _everything(learner: Learner, state: ModelState, observed: ParamTree, images: Tensor, labels: Tensor) -> None:
    leaf = images.clone().requires_grad_()
    leaves = {key: tensor.detach().requires_grad_() for key, tensor in state.params.items()}
    loss = learner.objective(leaves, state.buffers, Batch(leaf, labels))
    gradients = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
    Cosine()(dict(zip(leaves, gradients)), observed).backward()


def measure(name: str, count: int, rounds: int) -> dict[str, Any]:
    module = build(name)
    steps = steps_of(module, count)
    repeats = {}
    for title, run in steps.items():
        for _ in range(3):
            run()
        repeats[title] = max(1, round(SHORTEST / max(_seconds(run, 3), 1e-5)))
    times: dict[str, list[float]] = {title: [] for title in steps}
    for _ in range(rounds):
        for title, run in steps.items():
            times[title].append(_seconds(run, repeats[title]))
    base = times.pop(YARDSTICK)
    return {
        "architecture": name,
        "kind": kind_of(name),
        "batch": count,
        "parameters": sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad),
        "training_step_ms": round(1e3 * statistics.median(base), 3),
        "in_training_steps": {
            title: _quartiles([one / step for one, step in zip(own, base, strict=True)]) for title, own in times.items()
        },
        "difference": difference(name, count),
    }


def kind_of(name: str) -> str:
    return "convolutional" if name in CONVOLUTIONAL else "transformer" if name in TRANSFORMERS else "other"


def difference(name: str, count: int) -> float:
    """Of the exact sweeps from double backward, in float64, relative."""
    problem, images = pose(build(name).double(), count)
    exact = DoubleBackward().resolve(problem, images).one(problem, images).gradient
    return float((Tangent().one(problem, images).gradient - exact).norm() / exact.norm())


def _seconds(run: Callable[[], object], repeats: int) -> float:
    started = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - started) / repeats


def _quartiles(ratios: Sequence[float]) -> list[float]:
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return [round(middle, 2), round(low, 2), round(high, 2)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="architectures whose name has one of these")
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    wanted = [name for name in ARCHITECTURES if any(part in name for part in options.only)]
    for name, count in [] if options.show else itertools.product(wanted, options.batches):
        print(f"{name}, batch {count} ...", file=sys.stderr, flush=True)
        rows = [row for row in rows if (row["architecture"], row["batch"]) != (name, count)]
        rows.append(measure(name, count, options.rounds))
        keep(rows, options.rounds)
    show(rows)


def keep(rows: list[dict[str, Any]], rounds: int) -> None:
    names = list(ARCHITECTURES)
    rows.sort(key=lambda row: (names.index(row["architecture"]), row["batch"]))
    header = {
        "command": f"python benchmarks/architectures_speed.py --rounds {rounds}",
        "version": VERSION,
        "code": answering_code(),
        "seed": 0,
        "threads": 1,
        "torch": str(torch.__version__),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    write_text(RESULTS, json.dumps({**header, "limits": LIMITS, "rows": rows}, indent=1) + "\n")


def show(rows: list[dict[str, Any]]) -> None:
    titles = [*ROUTES, PEERS]
    print(f"{'architecture':34} {'batch':>5} {'step, ms':>9} " + " ".join(f"{title[:18]:>18}" for title in titles))
    for row in rows:
        costs = (
            f"{middle:.2f} ({low:.2f}-{high:.2f})" for middle, low, high in map(row["in_training_steps"].get, titles)
        )
        print(
            f"{row['architecture']:34} {row['batch']:5} {row['training_step_ms']:9.2f} "
            + " ".join(f"{cost:>18}" for cost in costs)
        )


if __name__ == "__main__":
    main()
