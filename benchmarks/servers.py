"""What servers that cheat read off updates, beside what they expected to; and what an aggregate still gives away.

    python benchmarks/servers.py --data-root DIR            # a table
    python benchmarks/servers.py --data-root DIR --out FILE # the rows, kept; those in the file are not run again
    python benchmarks/servers.py --data-root DIR --only "traps.*64"

Private images are CIFAR-10 test images above the thousandth (of one class, or of CIFAR-100, where a row says so), new
ones for each update; models are untrained, with another seed for each. Numbers are images of one update, on average:
``exact`` came back with more than 40 dB, ``identified`` are nearer to what came back than each of 500 others are;
``null`` is the latter of unrelated updates, held against the same images. Public images, where the server holds some,
are 500 training images. Labels are hidden.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge.attacks.analytic import FullyConnected, IndependentComponents
from leakgauge.attacks.base import Attack
from leakgauge.attacks.malicious import (
    ClassFishing,
    FeatureFishing,
    FrontLayer,
    MaliciousAttack,
    SparseFrontLayer,
    TrapWeights,
)
from leakgauge.config import build_dataset
from leakgauge.data import Dataset
from leakgauge.defences import NoDefence, SecureAggregation
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.metrics import PSNR, Identification, align
from leakgauge.models import MLP, Compact, build
from leakgauge.models.base import ModelFactory
from leakgauge.protocol import THREAT_MODELS, FedAvg, Federation, FedSGD, learner_and_state
from leakgauge.protocol.local_update import LocalUpdate
from leakgauge.protocol.round import simulate_round
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Reconstruction
from leakgauge.version import VERSION

TUNED_ON = 1000
"""Test images that constants may have been chosen on."""
PUBLIC, CROWD, EXACT = 500, 500, 40.0
CLIENTS = (1, 2, 4, 8, 16)

CONV, WIDE = Compact(), MLP(hidden=(1000, 100))
PLAIN, EIGHT_STEPS = FedSGD(), FedAvg(epochs=1, batch_size=8, learning_rate=0.1)


@dataclass(frozen=True)
class Situation:
    """A server, the model it was to send, and the clients behind an update; ``batch`` images are of all of them."""

    attack: Attack
    model: ModelFactory = CONV
    batch: int = 64
    clients: int = 1
    client: LocalUpdate = PLAIN
    public: bool = True
    dataset: str = "cifar10"
    one_class: bool = False
    updates: int = 5


def _situations() -> dict[str, Situation]:
    """By the name a row has."""
    imprint, several = FrontLayer(1000), FrontLayer(1000, measures=4)
    sparse = SparseFrontLayer(1000)
    fish = ClassFishing(FullyConnected(), target=7)
    one_class = {"batch": 32, "one_class": True, "model": WIDE, "updates": 10}
    return {
        "imprint, guessed brightness": Situation(imprint, public=False),
        "imprint": Situation(imprint),
        "imprint, 4 measures": Situation(several),
        "imprint, 4 measures, 256 images": Situation(several, batch=256, updates=3),
        "imprint, 8 local steps": Situation(imprint, client=EIGHT_STEPS),
        "sparse imprint": Situation(sparse),
        "sparse imprint, 8 local steps": Situation(sparse, client=EIGHT_STEPS),
        "sparse imprint, 8 local steps at 0.01": Situation(sparse, client=FedAvg(1, 8, 0.01)),
        **{f"imprint, {m} clients of 16": Situation(imprint, batch=16 * m, clients=m, updates=3) for m in CLIENTS},
        **{
            f"imprint, 4 measures, {m} clients of 16": Situation(several, batch=16 * m, clients=m, updates=3)
            for m in CLIENTS
        },
        "traps, 256 rows": Situation(TrapWeights(64), MLP()),
        "traps, 1000 rows": Situation(TrapWeights(64), WIDE),
        "traps, 256 rows, 100 images": Situation(TrapWeights(100), MLP(), batch=100, updates=3),
        "traps, 1000 rows, 100 images": Situation(TrapWeights(100), WIDE, batch=100, updates=3),
        "class fishing": Situation(fish, WIDE, dataset="cifar100", updates=10),
        "class fishing, 4 clients of 16": Situation(fish, WIDE, clients=4, dataset="cifar100", updates=10),
        "feature fishing, one class": Situation(FeatureFishing(FullyConnected(), target=7, examples=32), **one_class),
        **{f"independent components, {m} clients of 16": _parts(IndependentComponents(), m) for m in CLIENTS[:4]},
        "independent components of pixels, 2 clients of 16": _parts(IndependentComponents(differences=False), 2),
    }


def _parts(attack: IndependentComponents, clients: int) -> Situation:
    return Situation(attack, WIDE, batch=16 * clients, clients=clients, updates=3)


SITUATIONS = _situations()


def measured(name: str, data_root: str | None, *, seed: int) -> dict[str, Any]:
    """What came back of the updates of one situation, what was expected, and what came of unrelated ones."""
    now = SITUATIONS[name]
    dataset = _dataset(now.dataset, data_root)
    found: dict[str, list[float]] = {"exact": [], "identified": [], "null": [], "expected": []}
    started = time.process_time()
    for number in range(now.updates):
        truth, other, crowd = _drawn(dataset, now, number, seed)
        result = _result(now, dataset, truth, number)
        if (expected := _expected(now, result, dataset.num_classes)) is not None:
            found["expected"].append(expected)
        found["exact"].append(_count(result, truth, None))
        found["identified"].append(_count(result, truth, crowd))
        found["null"].append(_count(_result(now, dataset, other, number), truth, crowd))
    means = {key: round(sum(values) / len(values), 2) if values else None for key, values in found.items()}
    return {
        "server": name,
        "attack": repr(now.attack),
        "model": repr(now.model),
        "images": now.batch,
        "clients": now.clients,
        "local_update": repr(now.client),
        "updates": now.updates,
        "exact": means["exact"],
        "expected": means["expected"],
        "identified": means["identified"],
        "null": means["null"],
        "cpu_seconds": round((time.process_time() - started) / (2 * now.updates), 1),
    }


@cache
def _dataset(name: str, data_root: str | None) -> Dataset:
    return build_dataset(name, data_root)


def _drawn(dataset: Dataset, now: Situation, number: int, seed: int) -> tuple[Batch, Batch, Tensor]:
    """The private batch, an unrelated one, and the crowd."""
    labels = dataset.test.labels
    order = torch.randperm(len(labels), generator=seeded(seed, "servers", number))
    order = order[order >= TUNED_ON] if len(order) > 2 * TUNED_ON else order
    chosen = order[labels[order] == 7] if now.one_class else order
    truth, other = chosen[: now.batch], chosen[now.batch : 2 * now.batch]
    crowd = order[~torch.isin(order, torch.cat((truth, other)))][:CROWD]
    return dataset.test[truth], dataset.test[other], dataset.test.inputs[crowd]


def _result(now: Situation, dataset: Dataset, batch: Batch, number: int) -> Reconstruction:
    shape = dataset.space.shape
    federation = Federation(
        *learner_and_state(build(now.model, shape, dataset.num_classes, seed=number)), now.client, dataset.space
    )
    public = dataset.train[slice(0, PUBLIC)] if now.public else None
    if isinstance(now.attack, MaliciousAttack):
        federation = now.attack.tamper(federation, dataset.space, None if public is None else public.inputs)
    seen = simulate_round(
        federation,
        batch,
        threat_model=THREAT_MODELS["auxiliary"],
        defence=SecureAggregation(now.clients) if now.clients > 1 else NoDefence(),
        generator=seeded(number, "client"),
        auxiliary=public,
    )
    return now.attack(seen, generator=seeded(number, "attack"))


def _expected(now: Situation, result: Reconstruction, num_classes: int) -> float | None:
    """What the server expected; where a refused update leaves no record of it, the chance itself."""
    if isinstance(now.attack, ClassFishing | FeatureFishing):
        return now.attack.expected_recovery(now.batch, num_classes)
    expected = result.facts.get("expected exact")
    return None if expected is None else float(expected)


def _count(result: Reconstruction, truth: Batch, crowd: Tensor | None) -> float:
    """How many of the images came back, exactly or, given a crowd, nearer than all of it."""
    if result.inputs is None:
        return 0.0
    if crowd is None:
        return float((PSNR()(align(result, truth)).nan_to_num(0) > EXACT).sum())
    return float(Identification()(align(result, truth, crowd)).nan_to_num(0).sum())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name this pattern finds")
    parser.add_argument("--data-root")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if options.out is not None and options.out.is_file():
        rows = json.loads(options.out.read_text(encoding="utf-8"))["rows"]
    for name in SITUATIONS:
        if re.search(options.only, name) and not any(row["server"] == name for row in rows):
            rows.append(measured(name, options.data_root, seed=options.seed))
            print(json.dumps(rows[-1]), flush=True)
            if options.out is not None:
                write_text(options.out, json.dumps(_kept(rows, options.seed), indent=1, allow_nan=False) + "\n")


def _kept(rows: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    return {
        "title": "Servers that cheat, and aggregates: images of one update",
        "command": f"python benchmarks/servers.py --data-root DIR --seed {seed}",
        "version": VERSION,
        "fingerprint": answering_code(),
        "seed": seed,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "rows": sorted(rows, key=lambda row: list(SITUATIONS).index(row["server"])),
    }


if __name__ == "__main__":
    main()
