"""What the commands on encodings share: whose images, by which scheme, with which keys, and how far they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakgauge.cli.output import stderr
from leakgauge.errors import InvalidCase

if TYPE_CHECKING:
    from torch import Tensor

    from leakgauge.encodings import KeySource, Scheme
    from leakgauge.progress import Progress, Tick
    from leakgauge.types import Batch

DatasetOption = Annotated[str, typer.Option("--dataset", help="photos, digits, cifar10, npz:file='x.npz', ...")]
RootOption = Annotated[Path | None, typer.Option("--data-root", help="Folder that holds the dataset's files.")]
SplitOption = Annotated[str, typer.Option("--split", help="Which images of the dataset: train or test.")]
SchemeOption = Annotated[str, typer.Option("--scheme", help="inside:k=4, cross:k=6,least_private=0.3, mixup:k=4, ...")]
PublicOption = Annotated[
    Path | None, typer.Option("--public", help="Public images, as .safetensors; see `leakgauge instahide public`.")
]
SeedOption = Annotated[
    int | None,
    typer.Option("--insecure-seed", help="Repeat the keys by this seed: for tests and studies, never for real images."),
]


def images_of(dataset: str, root: Path | None, split: str) -> tuple[Batch, int]:
    """The images of one split with their classes, and how many classes there are."""
    from leakgauge.config import build_dataset

    if split not in ("train", "test"):
        raise InvalidCase(f"There is no split {split!r}; choose from train, test.")
    found = build_dataset(dataset, root)
    batch: Batch = getattr(found, split)
    if len(batch) == 0:
        raise InvalidCase(f"The {split} split of {found.name!r} is empty here; choose the other with --split.")
    return batch, found.num_classes


def scheme_of(text: str, public: Path | None) -> tuple[Scheme, Tensor | None]:
    """The scheme, and the public images if it mixes any."""
    from leakgauge.catalogue import SCHEMES
    from leakgauge.config import build
    from leakgauge.encodings.public_patches import read_public

    scheme: Scheme = build(SCHEMES, text, kind="scheme")
    if scheme.public_per_encoding and public is None:
        raise InvalidCase(f"The scheme {text!r} mixes in public images; name their file with --public.")
    if not scheme.public_per_encoding and public is not None:
        raise InvalidCase(f"The scheme {text!r} mixes in no public images; leave out --public, or choose cross.")
    return scheme, None if public is None else read_public(public)


def keys_of(seed: int | None) -> KeySource:
    """Secure keys unless a seed is given, which is said aloud."""
    from leakgauge.encodings import SecureKeys, SeededKeys
    from leakgauge.randomness import seeded

    if seed is None:
        return SecureKeys()
    stderr().print("[bold yellow]INSECURE[/] keys from a seed: for tests and studies only.", soft_wrap=True)
    return SeededKeys(seeded(seed, "instahide"))


@contextmanager
def ticking(what: str) -> Iterator[Progress]:
    """A bar on stderr for an attack, with the time left."""
    import time

    from rich.progress import TextColumn

    from leakgauge.report.progress import Pace, progress_bar, time_left

    pace = Pace(time.monotonic())
    with progress_bar(stderr(), TextColumn("{task.fields[left]}", style="cyan")) as bar:
        task = bar.add_task(what, total=1.0, left="", detail="preparing")

        def tick(tick: Tick) -> None:
            pace.tick(time.monotonic(), tick)
            loss = "" if math.isnan(tick.loss) else f", loss {tick.loss:.1e}"
            bar.update(task, completed=tick.fraction, left=time_left(pace.left), detail=f"step {tick.step}{loss}")

        yield tick


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """For reading: numbers to three digits after the point, and a dash for what was not measured."""
    return {
        name: "-" if value is None else f"{value:.3f}" if isinstance(value, float) else value
        for name, value in row.items()
    }
