"""How exactly closed forms recover batches and images, in what time, and whether they ever certify what is not so.

    python benchmarks/exact.py --data-root FOLDER --out FILE

``linear batch``: 3072-m-100-10 networks with ReLU, torch's default initialisation, batches of fresh CIFAR-10 images,
labels hidden. ``transformer``: a vision transformer of 64 patches, one image. ``noise``: the same linear attack
on updates of Gaussian noise, on dense ones of low rank, and on true ones under noise. ``recovered`` counts the updates
of which every image came back above 60 dB, ``false`` the certificates of updates of which that is not so. ``least_db``
is the worst image of all, ``null_db`` the nearest that what came back comes to images of another batch.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from architectures import ViT
from leakgauge.attacks.analytic import LinearBatches, PatchEmbedding
from leakgauge.attacks.base import Attack
from leakgauge.config import build_dataset
from leakgauge.defences import Clipping, GaussianNoise, NoDefence
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.models import Normalised
from leakgauge.protocol import THREAT_MODELS, FedAvg, Federation, FedSGD, UpdateObservation, learner_and_state
from leakgauge.protocol.round import simulate_round
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Update
from leakgauge.version import VERSION

LINEAR = ((8, 200), (16, 200), (24, 400), (24, 1000), (32, 400), (32, 1000), (64, 1000))
WIDTHS = (96, 128, 192)
BATCHES, IMAGES, EACH_NULL = 5, 10, 50
FIRST = 1000
"""Images before this one were used for choosing constants."""
EXACT = 60.0

Row = dict[str, Any]
Run = tuple[UpdateObservation, Tensor | None]
"""What an attack sees, and the images behind it, None where there are none."""


def observe(module: nn.Module, batch: Batch, **options: Any) -> UpdateObservation:
    learner, state = learner_and_state(module)
    client = options.get("client", FedSGD())
    return simulate_round(
        Federation(learner, state, client),
        batch,
        threat_model=THREAT_MODELS["honest_but_curious"],
        defence=options.get("defence", NoDefence()),
        generator=seeded(0, "client"),
    )


def perceptron(width: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Flatten(), nn.Linear(3072, width), nn.ReLU(), nn.Linear(width, 100), nn.ReLU(), nn.Linear(100, 10)]
    return Normalised(nn.Sequential(*layers), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


def cells(test: Batch) -> Iterator[tuple[Row, Attack, Callable[[], Iterator[Run]]]]:
    def of(count: int, number: int) -> Batch:
        start = FIRST + 64 * number
        return test[slice(start, start + count)]

    def linear(count: int, width: int, times: int, **options: Any) -> Callable[[], Iterator[Run]]:
        def runs() -> Iterator[Run]:
            for number in range(times):
                batch = of(count, number)
                yield observe(perceptron(width, number), batch, **options), batch.inputs

        return runs

    def transformers(width: int) -> Iterator[Run]:
        for number in range(IMAGES):
            torch.manual_seed(number)
            batch = of(1, number)
            yield observe(ViT(module=True, width=width), batch), batch.inputs

    for count, width in LINEAR:
        yield (
            {"kind": "linear batch", "batch": count, "width": width, "change": ""},
            LinearBatches(),
            linear(count, width, BATCHES),
        )
    changes = {"clipping": {"defence": Clipping(0.1)}, "3 local steps": {"client": FedAvg(3, 16, 0.01)}}
    for change, options in changes.items():
        name = {"kind": "linear batch", "batch": 16, "width": 400, "change": change}
        yield name, LinearBatches(), linear(16, 400, BATCHES, **options)
    for width in WIDTHS:
        name = {"kind": "transformer", "batch": 1, "width": width, "change": ""}
        yield name, PatchEmbedding(), lambda width=width: transformers(width)
    for change, spoil in SPOILT.items():
        name = {"kind": "noise", "batch": 8, "width": 200, "change": change}

        def runs(spoil: Callable[[UpdateObservation, int], UpdateObservation] = spoil) -> Iterator[Run]:
            for number, (seen, images) in enumerate(linear(8, 200, EACH_NULL)()):
                changed = spoil(seen, number)
                yield changed, images

        yield name, LinearBatches(), runs


def _pure_noise(seen: UpdateObservation, number: int) -> UpdateObservation:
    params = {
        name: torch.randn(one.shape, generator=seeded(number, name)) * one.std()
        for name, one in seen.update.params.items()
    }
    return replace(seen, update=Update(params))


def _low_rank(seen: UpdateObservation, number: int) -> UpdateObservation:
    params = dict(seen.update.params)
    weight, bias = (name for name, one in params.items() if one.shape[0] == 200 and "1" in name)
    left, right = (torch.randn(8, size, generator=seeded(number, size)) for size in params[weight].shape)
    return replace(seen, update=Update({**params, weight: left.mT @ right, bias: left.sum(dim=0)}))


def _under_noise(share: float) -> Callable[[UpdateObservation, int], UpdateObservation]:
    def spoil(seen: UpdateObservation, number: int) -> UpdateObservation:
        size = share * float(torch.cat([one.flatten() for one in seen.update.params.values()]).square().mean().sqrt())
        client = GaussianNoise(size)
        noisy = {
            name: one + size * torch.randn(one.shape, generator=seeded(number, name))
            for name, one in seen.update.params.items()
        }
        return replace(seen, update=Update(noisy), local_update=client(FedSGD()))

    return spoil


SPOILT: dict[str, Callable[[UpdateObservation, int], UpdateObservation]] = {
    "Gaussian noise alone": _pure_noise,
    "dense, of rank 8": _low_rank,
    "1e-4 of the gradient's RMS added": _under_noise(1e-4),
    "1e-2 of the gradient's RMS added": _under_noise(1e-2),
}


def decibels(found: Tensor, images: Tensor) -> Tensor:
    """Of each image the nearest that came back."""
    distances = torch.cdist(images.flatten(1).double(), found.flatten(1).double()).amin(dim=1)
    return -10 * (distances.square() / images[0].numel()).clamp_min(1e-30).log10()


def measure(attack: Attack, runs: Iterator[Run], others: Tensor) -> Row:
    updates = recovered = returned = certified = false = 0
    least, medians, nulls, seconds = [], [], [], []
    for seen, images in runs:
        began = time.process_time()
        found = attack(seen, generator=seeded(0, "attack"))
        seconds.append(time.process_time() - began)
        updates += 1
        exact = False
        if found.inputs is not None and images is not None:
            returned += 1
            scores = decibels(found.inputs, images)
            exact = bool((scores > EXACT).all())
            least.append(float(scores.min()))
            medians.append(float(scores.median()))
            nulls.append(float(decibels(found.inputs, others).max()))
        recovered += exact
        certified += found.certificate is not None
        false += found.certificate is not None and not exact
    return {
        "updates": updates,
        "returned": returned,
        "recovered": recovered,
        "certified": certified,
        "false": false,
        "least_db": round(min(least), 1) if least else None,
        "median_db": round(sorted(medians)[len(medians) // 2], 1) if medians else None,
        "null_db": round(max(nulls), 1) if nulls else None,
        "cpu_seconds": round(sorted(seconds)[len(seconds) // 2], 2),
        "most_cpu_seconds": round(max(seconds), 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True, help="where CIFAR-10 lies")
    parser.add_argument("--out", type=Path, help="write the rows here, each as it is done")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    test = build_dataset("cifar10", options.data_root).test
    others = test[slice(FIRST - 100, FIRST)].inputs
    setting = {
        "title": "Exact recoveries in closed form, and their certificates",
        "command": "python benchmarks/exact.py --data-root FOLDER",
        "version": VERSION,
        "fingerprint": answering_code(),
        "seed": 0,
        "scale": f"CIFAR-10 test images from {FIRST} on: {BATCHES} batches, {IMAGES} images, {EACH_NULL} nulls a row",
    }
    rows: list[Row] = []
    for name, attack, runs in cells(test):
        print(" ".join(map(str, name.values())), "...", file=sys.stderr)
        rows.append(name | measure(attack, runs(), others))
        print(json.dumps(rows[-1]), file=sys.stderr)
        if options.out is not None:
            write_text(options.out, json.dumps({**setting, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
