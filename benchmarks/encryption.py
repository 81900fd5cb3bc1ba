"""What it takes to encrypt images with InstaHide: against the obvious loop, and against a step of training.

    python benchmarks/encryption.py                  # a table
    python benchmarks/encryption.py --json           # the rows, for machines
    python benchmarks/encryption.py --out FILE       # the rows, kept
    python benchmarks/encryption.py --images 2000 --loop 50 --rounds 1 --no-training

Images are noise of 3 x 32 x 32 pixels; what is measured does not depend on them. Keys are secure in every row: drawing
them is part of the time. ``loop`` encrypts a few images one by one, as one would write it down, and its time is scaled
to all of them; ``difference`` is the largest between its pixels and ours by the same mixing, up to the mask, so that
no time is that of a failure. ``batch`` is the encryption of one batch of 128 inside a loader, ``step`` a training step
of ResNet-18 on it, and ``share`` the first in the second. ``patches`` is a public set cut from the photographs of
scikit-image. Times are medians over rounds, by the clock on the wall and of the processor, of all threads together,
which a busy machine changes least.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from leakgauge.encodings import CrossDataset, InsideDataset, Scheme, SecureKeys, encrypt
from leakgauge.encodings.loading import encrypted_loader
from leakgauge.encodings.schemes import apply
from leakgauge.files import write_text
from leakgauge.models import ResNet, build
from leakgauge.protocol.encoding import Mixing
from leakgauge.randomness import seeded
from leakgauge.types import Batch
from leakgauge.version import VERSION

SHAPE, CLASSES, BATCH = (3, 32, 32), 10, 128
KEYS = SecureKeys()
Row = dict[str, object]


def one_by_one(scheme: Scheme, images: Tensor, num_private: int, count: int) -> tuple[Tensor, Mixing]:
    """The obvious loop: each encoding for itself, its key as well."""
    own, chance, encodings, rows, chosen = scheme.private_per_encoding, SystemRandom(), [], [], []
    public = range(num_private, len(images))
    for first in range(count):
        others = [(first + step) % num_private for step in chance.sample(range(1, num_private), own - 1)]
        indices = [first, *others, *chance.sample(public, scheme.public_per_encoding)]
        coefficients = torch.ones(scheme.k)
        while scheme.k > 1 and (coefficients.max() > scheme.largest or coefficients[:own].sum() < scheme.least):
            coefficients = KEYS.uniform(scheme.k)
            coefficients = coefficients / coefficients.sum()
        mixture = torch.zeros(images.shape[1:])
        for coefficient, index in zip(coefficients.tolist(), indices, strict=True):
            mixture += coefficient * images[index]
        encodings.append(torch.where(KEYS.flips(*mixture.shape), 1 - mixture, mixture))
        rows.append(coefficients)
        chosen.append(indices)
    return torch.stack(encodings), Mixing(torch.stack(rows), torch.tensor(chosen), scheme.signed)


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """By the clock on the wall, and of the processor."""
    started, worked = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - started, time.process_time() - worked


def median(run: Callable[[], object], rounds: int) -> tuple[float, float]:
    run()
    times = [seconds(run) for _ in range(rounds)]
    return statistics.median(wall for wall, _ in times), statistics.median(cpu for _, cpu in times)


def against_the_loop(scheme: Scheme, count: int, looped: int, rounds: int) -> list[Row]:
    private = Batch(
        torch.rand(count, *SHAPE, generator=seeded(0, "private")),
        torch.randint(CLASSES, (count,), generator=seeded(0, "labels")),
    )
    public = torch.rand(count // 5, *SHAPE, generator=seeded(0, "public")) if scheme.public_per_encoding else None
    ours = median(lambda: encrypt(scheme, private, classes=CLASSES, public=public, keys=KEYS), rounds)
    everything = private.inputs if public is None else torch.cat([private.inputs, public])
    loop = median(lambda: one_by_one(scheme, everything, count, looped), rounds)
    slow, mixing = one_by_one(scheme, everything, count, looped)
    fast, _ = apply(scheme, mixing, private, classes=CLASSES, public=public, keys=KEYS)
    apart = (slow - 0.5).abs() - (fast.images - 0.5).abs()
    scale = count / looped
    return [
        {"what": f"encrypt, {scheme}", "images": count, "seconds": ours[0], "cpu_seconds": ours[1]},
        {
            "what": f"loop, {scheme}",
            "images": count,
            "seconds": loop[0] * scale,
            "cpu_seconds": loop[1] * scale,
            "measured_on": looped,
            "times_slower": loop[0] * scale / ours[0],
            "difference": float(apart.abs().max()),
        },
    ]


def against_training(scheme: Scheme, rounds: int) -> list[Row]:
    private = Batch(
        torch.rand(8 * BATCH, *SHAPE, generator=seeded(0, "private")),
        torch.randint(CLASSES, (8 * BATCH,), generator=seeded(0, "labels")),
    )
    loader = encrypted_loader(scheme, private, classes=CLASSES, batch_size=BATCH, keys=KEYS)
    epoch = median(lambda: list(loader), max(3, rounds))
    model = build(ResNet(depth=18), SHAPE, CLASSES, seed=0).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    images, labels = next(iter(loader))

    def step() -> None:
        optimiser.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimiser.step()

    trained = median(step, rounds)
    wall, cpu = (value / len(loader) for value in epoch)
    return [
        {"what": f"batch, {scheme}", "images": BATCH, "seconds": wall, "cpu_seconds": cpu, "share": wall / trained[0]},
        {"what": "step, ResNet-18", "images": BATCH, "seconds": trained[0], "cpu_seconds": trained[1]},
    ]


def of_patches(count: int) -> list[Row]:
    from skimage import data as photographs

    from leakgauge.encodings.public_patches import Patches

    images = [
        torch.from_numpy(picture()).permute(2, 0, 1).float() / 255
        for picture in (photographs.astronaut, photographs.chelsea, photographs.coffee)
    ]
    wall, cpu = seconds(lambda: Patches()(images, count, keys=KEYS))
    return [{"what": f"patches, {Patches()}", "images": count, "seconds": wall, "cpu_seconds": cpu}]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--loop", type=int, default=500, help="images that the loop encrypts")
    parser.add_argument("--patches", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-training", dest="training", action="store_false")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="also write the rows to this file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    rows: list[Row] = []
    schemes = (InsideDataset(options.k), *((CrossDataset(options.k),) if options.k > 2 else ()))
    for scheme in schemes:
        print(f"measuring {scheme} ...", file=sys.stderr)
        rows += against_the_loop(scheme, options.images, min(options.loop, options.images), options.rounds)
    if options.patches:
        print("cutting patches ...", file=sys.stderr)
        rows += of_patches(options.patches)
    if options.training:
        print("training ...", file=sys.stderr)
        rows += against_training(schemes[0], options.rounds)
    rows = [{name: round(x, 6) if isinstance(x, float) else x for name, x in row.items()} for row in rows]
    numbers = " ".join(f"--{name} {getattr(options, name)}" for name in ("images", "k", "loop", "patches"))
    words = f"{numbers} --rounds {options.rounds} --threads {options.threads}"
    result = json.dumps(
        {
            "command": f"python benchmarks/encryption.py {words}" + ("" if options.training else " --no-training"),
            "version": VERSION,
            "seed": 0,
            "rounds": options.rounds,
            "threads": options.threads,
            "torch": str(torch.__version__),
            "machine": f"{platform.system()} {platform.machine()}",
            "rows": rows,
        },
        indent=1,
    )
    if options.out is not None:
        write_text(options.out, result + "\n")
    if options.json:
        print(result)
        return
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
