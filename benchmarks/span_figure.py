"""The picture of the README: a batch of four, what gradient matching and what span matching make of its update.

    python benchmarks/span_figure.py --data-root DIR --out docs/span.png

One update of a ResNet-18 with torch's initialisation, four CIFAR-10 test images, labels known, the same CPU seconds for
both attacks, nothing chosen by the truth but which row a picture stands in.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor

from leakgauge.attacks.budget import Budget
from leakgauge.attacks.recipes.best import Best
from leakgauge.config import build_dataset
from leakgauge.files import write_text
from leakgauge.metrics import PSNR, align
from leakgauge.randomness import seeded
from leakgauge.report.images import strip, write_strips
from span import CELLS, SEED, observe

CELL = "ResNet-18, batch 4"
ENLARGED = 4


def enlarged(images: Tensor) -> Tensor:
    """Without being smoothed, so that every pixel shows."""
    return images.repeat_interleave(ENLARGED, dim=2).repeat_interleave(ENLARGED, dim=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset, cell = build_dataset("cifar10", options.data_root), CELLS[CELL]
    victim = dataset.test[torch.arange(options.first, options.first + cell.batch_size)]
    seen = observe(cell, dataset, victim)
    attack = Best(Budget(seconds=cell.seconds))
    found = {
        "gradient matching": attack.matching([seen], attack.budget, None, generator=seeded(SEED, "matching")).run()[0],
        "span matching": attack(seen, generator=seeded(SEED, "attack", 0)),
    }
    compared = {name: align(one, victim) for name, one in found.items()}
    scores = {name: [round(float(one), 1) for one in PSNR()(own)] for name, own in compared.items()}
    rows = [victim.inputs, *(own.reconstructions for own in compared.values())]
    write_strips([strip(enlarged(row)) for row in rows], options.out)
    facts = {"command": "python benchmarks/span_figure.py", "cell": CELL, "seconds": cell.seconds, "seed": SEED}
    images = list(range(options.first, options.first + cell.batch_size))
    text = json.dumps({**facts, "images": images, "psnr": scores}, indent=1)
    write_text(options.out.with_suffix(".json"), text + "\n")
    print(text)


if __name__ == "__main__":
    main()
