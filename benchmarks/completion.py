"""How much of a pruned update of a linear layer its visible entries give away, how exactly, and in what time.

    python benchmarks/completion.py --data-root FOLDER --out FILE

The layer is the hidden one of `conv_mlp`: as many units as ``units`` says, 4096 inputs, untrained, GELU, BatchNorm in
train mode; batches are of fresh CIFAR-10 images. ``sent`` is the share of its entries that pruning left, ``known`` the
share known after `complete`, ``energy`` the part of the squared length that they carry, ``error`` the relative error
of the entries that were not sent. The null is noise of the same layout, of which nothing must come back:
``null_known`` is the share known of it. Means over batches; one thread.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from leakgauge.attacks.adaptive.completion import complete
from leakgauge.config import build_dataset
from leakgauge.defences.pruning import keep_largest
from leakgauge.files import write_text
from leakgauge.fingerprint import answering_code
from leakgauge.models import ConvMLP, build
from leakgauge.randomness import seeded
from leakgauge.types import Batch
from leakgauge.version import VERSION

CELLS = (
    *((512, count, keep) for count in (1, 4, 16, 32) for keep in (0.3, 0.1, 0.05, 0.01)),
    (512, 64, 0.3),
    (4096, 16, 0.05),
)
"""Units, images in the batch, and the share that pruning keeps."""
FIRST, APART = 8000, 64
"""Images before the first were used for choosing constants; batches are so many apart."""

Row = dict[str, Any]


def gradient(units: int, batch: Batch, seed: int) -> Tensor:
    module = build(ConvMLP(activation="gelu", batch_norm=True, hidden=(units,)), (3, 32, 32), 10, seed=seed).train()
    weight: Tensor = module.get_parameter("linear1.weight")
    (found,) = torch.autograd.grad(cross_entropy(module(batch.inputs), batch.labels), weight)
    return found


def measure(units: int, count: int, keep: float, batches: Sequence[Batch]) -> Row:
    rows = []
    for number, batch in enumerate(batches):
        full = gradient(units, batch, number)
        sent = keep_largest(full, keep)
        began = time.process_time()
        known = complete(sent, count)
        used = time.process_time() - began
        noise = keep_largest(torch.randn(full.shape, generator=seeded(number, "noise")), keep)
        back = (known != 0) & (sent == 0)
        rows.append(
            {
                "sent": _share(sent),
                "known": _share(known),
                "energy": float((full * (known != 0)).square().sum() / full.square().sum()),
                "error": float((known - full)[back].norm() / full[back].norm()) if back.any() else None,
                "null_known": _share(complete(noise, count)),
                "cpu_seconds": used,
            }
        )
    means = {name: _mean([row[name] for row in rows]) for name in rows[0]}
    return {"units": units, "batch": count, "keep": keep, "updates": len(rows), **means}


def _share(matrix: Tensor) -> float:
    return float((matrix != 0).double().mean())


def _mean(values: Sequence[float | None]) -> float | None:
    """Three digits; of an error that some batches have not, over the others."""
    known = [value for value in values if value is not None]
    return float(f"{fmean(known):.3g}") if known else None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-root", type=Path, metavar="FOLDER")
    parser.add_argument("--updates", type=int, default=3, help="batches of each cell")
    parser.add_argument("--cells", type=int, default=len(CELLS), help="only the first so many")
    parser.add_argument("--first", type=int, default=FIRST, help="number of the first image")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    test = build_dataset(options.dataset, options.data_root).test
    rows = []
    for units, count, keep in CELLS[: options.cells]:
        starts = (options.first + APART * number for number in range(options.updates))
        rows.append(measure(units, count, keep, [test[slice(start, start + count)] for start in starts]))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    result = {
        "title": "What the visible entries of a pruned linear layer say of the others",
        "command": f"python benchmarks/completion.py --data-root DIR --updates {options.updates} --out FILE",
        "version": VERSION,
        "code": answering_code(),
        "first": options.first,
        "seed": 0,
        "rows": rows,
    }
    text = json.dumps(result, indent=1, allow_nan=False) + "\n"
    if options.out is None:
        print(text, end="")
    else:
        write_text(options.out, text)


if __name__ == "__main__":
    main()
