"""Attacks on many small architectures: one image by the best attack in 20 CPU seconds.

    python benchmarks/gallery.py --data FOLDER              # attack every architecture, go on where it stopped
    python benchmarks/gallery.py --data FOLDER --only vit   # those whose name has this

Undefended and untrained, labels known to nobody. Each attack has its null beside it: what came back from the update of
the other original, scored against this one. ``identified`` is whether the original is nearer to what came back than 99
others of the same data set; ``identified_elsewhere`` the same after the best circular shift of what came back, which
shows a picture that was found at another place. ``angle`` is how far the update of what came back is from the observed
one, tensor by tensor, ``half_angle`` that of the original at half resolution: where the former is smaller and yet the
wrong picture, the update leaves open which it was; where it is larger, the search had not come to its end. Recipes were
tuned on other images, those below 100. What a step costs on each: ``architectures_speed.py``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from architectures import ARCHITECTURES, build
from leakgauge.attacks.labels.best import BestLabels
from leakgauge.attacks.matching import CosineByTensor
from leakgauge.attacks.matching.priors.images import register
from leakgauge.attacks.recipes.best import best
from leakgauge.attacks.recipes.families import family_of
from leakgauge.data.cifar import Cifar10
from leakgauge.files import write_text
from leakgauge.protocol import THREAT_MODELS, Federation, learner_and_state, simulate_round
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch
from leakgauge.version import VERSION

RESULTS = Path(__file__).parent / "results" / "gallery.json"
SECONDS = 20.0
VICTIMS, CROWD = (1200, 1210), range(1400, 1499)

Row = dict[str, Any]


def observe(name: str, batch: Batch) -> UpdateObservation:
    learner, state = learner_and_state(build(name))
    return simulate_round(
        Federation(learner, state),
        batch,
        threat_model=THREAT_MODELS["informed"],
        defence=lambda client: client,
        generator=seeded(0, "gallery"),
    )


def attack(name: str, pictures: Batch, seconds: float) -> list[Row]:
    """Each original by its own update, and by that of the other."""
    crowd = pictures.inputs[CROWD.start : CROWD.stop]
    rows, returned = [], {}
    for victim in VICTIMS:
        truth = pictures[victim : victim + 1]
        seen = observe(name, truth)
        started = time.process_time()
        result = best(seconds=seconds)(seen, generator=seeded(victim, "gallery"))
        assert result.inputs is not None
        returned[victim] = result.inputs[0]
        rows.append(
            {
                "architecture": name,
                "family": family_of(seen),
                "answered_by": str(result.facts.get("answered by", "gradient matching")),
                "image": victim,
                "cpu_seconds": round(time.process_time() - started, 1),
                "steps": int(result.facts.get("steps", 0)),
                "angle": angle(seen, returned[victim]),
                "half_angle": angle(seen, halved(truth.inputs[0])),
            }
        )
    for row, other in zip(rows, reversed(VICTIMS)):
        own = row["image"]
        row |= compare(pictures.inputs[own], crowd, returned[own], returned[other])
        row["why_not"] = why_not(row)
    return rows


def compare(truth: Tensor, crowd: Tensor, back: Tensor, unrelated: Tensor) -> Row:
    """How near what came back is to the original, where it is and where it fits best, and how near the null is."""
    shifted = register(back, truth)
    return {
        "psnr": _decibels(back, truth),
        "null": _decibels(unrelated, truth),
        "identified": _identified(back, truth, crowd),
        "null_identified": _identified(unrelated, truth, crowd),
        "identified_elsewhere": _identified(shifted, truth, crowd),
    }


def why_not(row: Row) -> str | None:
    """The reason that the numbers of a row give for an original that is not identified."""
    if row["identified"]:
        return None
    if row["identified_elsewhere"]:
        return "nearer to the original than to others only when moved to where it fits best"
    if row["angle"] > row["half_angle"]:
        return "the search did not come to its end"
    return "another picture explains the update better than the original at half resolution"


def angle(seen: UpdateObservation, image: Tensor) -> float:
    """Between the update of an image and the observed one, under the label the attacker restores."""
    label = BestLabels()(seen, generator=seeded(0)).labels
    assert label is not None
    gradient = seen.learner.gradient(seen.state, Batch(image[None], label))
    own = {key: tensor.detach() for key, tensor in gradient.items()}
    return float(CosineByTensor()(own, seen.update.params))


def halved(image: Tensor) -> Tensor:
    small = functional.interpolate(image[None], scale_factor=0.5, mode="area")
    return functional.interpolate(small, size=image.shape[-2:], mode="bilinear")[0]


def _decibels(back: Tensor, truth: Tensor) -> float:
    return round(-10 * math.log10(max(float((back - truth).square().mean()), 1e-12)), 2)


def _identified(back: Tensor, truth: Tensor, crowd: Tensor) -> bool:
    own = float((back - truth).square().mean())
    return own < float((crowd - back).square().mean(dim=(1, 2, 3)).min())


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder CIFAR-10 lies in")
    parser.add_argument("--only", nargs="+", default=[""], help="architectures whose name has one of these")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    pictures = Cifar10()(options.data).test[: CROWD.stop]
    for name in ARCHITECTURES:
        done = {row["architecture"] for row in _kept(options.out)}
        if not any(part in name for part in options.only) or (name in done and not options.again):
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        found = attack(name, pictures, options.seconds)
        # Read again: another process may have measured other architectures meanwhile.
        write(options.out, [row for row in _kept(options.out) if row["architecture"] != name] + found, options.seconds)


def write(file: Path, rows: list[Row], seconds: float) -> None:
    order = list(ARCHITECTURES)
    result = {
        "title": f"Architectures: one CIFAR-10 image in {seconds:g} CPU seconds, PSNR in dB",
        "command": "python benchmarks/gallery.py --data FOLDER",
        "version": VERSION,
        "torch": str(torch.__version__),
        "attack": "best",
        "cpu_seconds": seconds,
        "seed": "the index of the image",
        "crowd": len(CROWD),
        "rows": sorted(rows, key=lambda row: (order.index(row["architecture"]), row["image"])),
    }
    write_text(file, json.dumps(result, indent=1) + "\n")


def _kept(file: Path) -> list[Row]:
    return json.loads(file.read_text())["rows"] if file.exists() else []


if __name__ == "__main__":
    main()
