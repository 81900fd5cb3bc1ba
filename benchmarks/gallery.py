"""Attacks on many small architectures: one image by the best attack in 20 CPU seconds, and what a step costs on each.

    python benchmarks/gallery.py --data FOLDER              # attack and time every architecture, go on where it stopped
    python benchmarks/gallery.py --data FOLDER --only vit   # those whose name has this
    python benchmarks/gallery.py --show                     # the table of what was measured

Undefended and untrained, labels known to nobody. Each attack has its null beside it: the same attack on the update of
an unrelated image, scored against the same original. ``identified`` is whether the original is nearer to what came back
than 99 others of the same data set. Costs are those of ``speed.py``: CPU time over that of a training step of the
same model and eight images, medians over interleaved rounds; ``double backward, everything`` is ``backward()`` through
``create_graph``, as published code has it. Recipes were tuned on other images, those below 100.
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
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from architectures import ARCHITECTURES, build
from leakgauge.attacks.matching import Cosine, DoubleBackward, FrozenDifference, Tangent
from leakgauge.attacks.matching.problem import MatchingProblem
from leakgauge.attacks.recipes.best import best, family_of
from leakgauge.data.cifar import Cifar10
from leakgauge.files import write_text
from leakgauge.protocol import THREAT_MODELS, Federation, FedSGD, learner_and_state, simulate_round
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch
from leakgauge.version import VERSION

RESULTS = Path(__file__).parent / "results" / "gallery.json"
SECONDS = 20.0
VICTIMS, NULLS, CROWD = (200, 210), (300, 310), range(400, 499)
ROUNDS = 9
COSTED = 8
"""Images in the batch whose step is timed."""


@dataclass(frozen=True)
class Pictures:
    """Originals, unrelated ones, and the crowd each original is picked out of."""

    images: Tensor
    labels: Tensor

    def batch(self, index: int) -> Batch:
        return Batch(self.images[index : index + 1], self.labels[index : index + 1])


def observe(name: str, batch: Batch) -> UpdateObservation:
    learner, state = learner_and_state(build(name))
    return simulate_round(
        Federation(learner, state),
        batch,
        threat_model=THREAT_MODELS["informed"],
        defence=lambda client: client,
        generator=seeded(0, "gallery"),
    )


def attack(name: str, pictures: Pictures, seconds: float) -> dict[str, Any]:
    """Each original by its own update, and by that of an unrelated image."""
    found: dict[str, Any] = {"seconds": seconds}
    crowd = torch.stack([pictures.images[index] for index in CROWD])
    rows = []
    for victim, unrelated in zip(VICTIMS, NULLS):
        truth, row = pictures.images[victim], {"image": victim}
        for kind, index in (("attack", victim), ("null", unrelated)):
            seen = observe(name, pictures.batch(index))
            if kind == "attack":
                found["family"] = family_of(seen)
            started = time.process_time()
            result = best(seconds=seconds)(seen, generator=seeded(victim, "gallery"))
            row[f"{kind}_cpu_seconds"] = round(time.process_time() - started, 1)
            assert result.inputs is not None
            back = result.inputs[0]
            own = float((back - truth).square().mean())
            row[f"{kind}_psnr"] = round(-10 * torch.tensor(own).log10().item(), 2)
            row[f"{kind}_identified"] = own < float((crowd - back).square().mean(dim=(1, 2, 3)).min())
            if kind == "attack":
                found["route"], row["steps"] = result.facts["route"], int(result.facts["steps"])
                found["why"] = result.facts.get("why this route", "")
                row["loss"] = float(result.facts["loss"])
        rows.append(row)
    return {**found, "rows": rows}


def cost(name: str, pictures: Pictures) -> dict[str, Any]:
    """Of one evaluation of the matching loss with its derivative, in training steps."""
    batch = Batch(pictures.images[:COSTED], pictures.labels[:COSTED])
    start = pictures.images[COSTED : 2 * COSTED]
    module = build(name)
    learner, state = learner_and_state(module)
    observed = {key: tensor.detach() for key, tensor in learner.gradient(state, batch).items()}
    problem = MatchingProblem(learner, state, FedSGD(), observed, Cosine(), batch.labels)
    graph = DoubleBackward().resolve(problem, start)
    steps: dict[str, Callable[[], object]] = {"training step": partial(_train, module, start, batch.labels)}
    composed = graph.linearise(problem, start)
    steps["double backward, everything"] = partial(_everything, composed.learner, state, observed, start, batch.labels)  # type: ignore[attr-defined]
    routes = {"double backward": graph, "exact": Tangent(), "frozen": FrozenDifference()}
    for title, route in routes.items():
        steps[title] = partial(route.matcher(problem, start), start, batch.labels)
    for run in steps.values():
        run()
    times: dict[str, list[float]] = {title: [] for title in steps}
    for _ in range(ROUNDS):
        for title, run in steps.items():
            started = time.process_time()
            run()
            times[title].append(time.process_time() - started)
    base = times["training step"]
    return {
        "parameters": sum(tensor.numel() for tensor in state.params.values()),
        "training_step_ms": round(1e3 * statistics.median(base), 3),
        **{title: round(statistics.median(a / b for a, b in zip(own, base)), 2) for title, own in times.items()},
    }


def _train(module: torch.nn.Module, images: Tensor, labels: Tensor) -> None:
    module.zero_grad(set_to_none=True)
    cross_entropy(module(images), labels).backward()


def _everything(learner: Any, state: Any, observed: Any, images: Tensor, labels: Tensor) -> None:
    leaf = images.clone().requires_grad_()
    leaves = {key: tensor.clone().requires_grad_() for key, tensor in state.params.items()}
    loss = learner.objective(leaves, state.buffers, Batch(leaf, labels))
    gradients = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
    Cosine()(dict(zip(leaves, gradients)), observed).backward()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder CIFAR-10 lies in")
    parser.add_argument("--only", nargs="+", default=[""], help="architectures whose name has one of these")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    parser.add_argument("--costs", action="store_true", help="what a step costs, and no attack")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept: dict[str, Any] = json.loads(RESULTS.read_text())["architectures"] if RESULTS.exists() else {}
    if not options.show:
        test = Cifar10()(options.data).test
        pictures = Pictures(test.inputs[:500], test.labels[:500])
        for name in ARCHITECTURES:
            done = "cost" if options.costs else "rows"
            if not any(part in name for part in options.only) or (done in kept.get(name, {}) and not options.again):
                continue
            print(f"{name} ...", file=sys.stderr, flush=True)
            found = {} if options.costs else attack(name, pictures, options.seconds)
            kept[name] = {**kept.get(name, {}), **found, "cost": cost(name, pictures)}
            header = {"command": "python benchmarks/gallery.py", "version": VERSION, "torch": str(torch.__version__)}
            write_text(RESULTS, json.dumps({**header, "architectures": kept}, indent=1) + "\n")
    show(kept)


def show(kept: dict[str, Any]) -> None:
    print(f"{'architecture':34} {'route':18} {'identified':>10} {'PSNR':>12} {'null':>12}", end=" ")
    print(f"{'exact':>6} {'frozen':>6} {'graph':>6} {'all':>6}")
    for name, found in kept.items():
        rows, costs = found.get("rows", []), found["cost"]
        hits = f"{sum(row['attack_identified'] for row in rows)} of {len(rows)}" if rows else "not tried"
        psnr, null = (" ".join(f"{row[f'{kind}_psnr']:.1f}" for row in rows) for kind in ("attack", "null"))
        print(
            f"{name:34} {found.get('route', ''):18} {hits:>10} {psnr:>12} {null:>12} {costs['exact']:6} "
            f"{costs['frozen']:6} {costs['double backward']:6} {costs['double backward, everything']:6}"
        )


if __name__ == "__main__":
    main()
