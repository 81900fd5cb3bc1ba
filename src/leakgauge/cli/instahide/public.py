"""``leakgauge instahide public``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.instahide.common import RootOption, SeedOption, SplitOption, images_of, keys_of, ticking
from leakgauge.cli.options import JsonFlag
from leakgauge.cli.output import print_rows


def public(
    folder: Annotated[Path | None, typer.Argument(help="Folder of public images; or else give --dataset.")] = None,
    dataset: Annotated[str | None, typer.Option(help="A dataset to cut from, instead of a folder.")] = None,
    data_root: RootOption = None,
    split: SplitOption = "train",
    count: Annotated[int, typer.Option(help="How many patches.")] = 10_000,
    size: Annotated[int, typer.Option(help="Side of a patch, in pixels.")] = 32,
    crop: Annotated[int, typer.Option(help="Side of the crop that is shrunk to it.")] = 96,
    key_points: Annotated[int, typer.Option(help="Keep crops with more SIFT key points than this.")] = 40,
    greyscale: Annotated[bool, typer.Option("--greyscale", help="Patches of one channel, from a folder.")] = False,
    insecure_seed: SeedOption = None,
    out: Annotated[Path, typer.Option("--out", help="Where the patches go, as .safetensors.")] = Path(
        "public.safetensors"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Prepare a public set for cross-dataset InstaHide: random crops, flat ones left out. Done once, then kept."""
    import time
    from collections.abc import Sequence

    from torch import Tensor

    from leakgauge.data import Pictures
    from leakgauge.encodings.public_patches import Patches, cached_patches
    from leakgauge.errors import InvalidCase

    if (folder is None) == (dataset is None):
        raise InvalidCase("Patches are cut from one source; name a folder of images, or a dataset with --dataset.")
    patches = Patches(size, crop, key_points)
    images: Sequence[Tensor]
    if folder is not None:
        images, source = Pictures(folder, greyscale=greyscale), str(folder)
    else:
        images, source = list(images_of(str(dataset), data_root, split)[0].inputs), f"{dataset} ({split})"
    keys = keys_of(insecure_seed)
    started = time.perf_counter()
    with ticking("cutting patches") as progress:
        found = cached_patches(out, patches, images, count, source=source, keys=keys, progress=progress)
    seconds = round(time.perf_counter() - started, 3)
    row = {"file": str(out), "patches": len(found), "size": size, "images": len(images), "seconds": seconds}
    print_rows([row], "instahide public", as_json, insecure_seed)
