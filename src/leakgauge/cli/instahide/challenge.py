"""``leakgauge instahide challenge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.instahide.common import (
    DatasetOption,
    PublicOption,
    RootOption,
    SchemeOption,
    SeedOption,
    SplitOption,
    images_of,
    keys_of,
    rounded,
    scheme_of,
    ticking,
)
from leakgauge.cli.options import JsonFlag
from leakgauge.cli.output import print_rows


def challenge(
    secret: Annotated[Path, typer.Option(help="Folder of the secret, outside of what is published.")],
    make: Annotated[Path | None, typer.Option(help="Write a challenge to this folder.")] = None,
    score: Annotated[
        Path | None, typer.Option(help="Grade this submission: `images` n c h w in .npz or .safetensors.")
    ] = None,
    decoys: Annotated[
        Path | None, typer.Option(help="With --score: other images, which recovered ones must be told from.")
    ] = None,
    dataset: DatasetOption = "photos",
    data_root: RootOption = None,
    split: SplitOption = "test",
    private: Annotated[int, typer.Option(help="How many images to hide.")] = 30,
    copies: Annotated[int, typer.Option(help="Encryptions of each.")] = 30,
    scheme: SchemeOption = "inside:k=4",
    public: PublicOption = None,
    insecure_seed: SeedOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Set a challenge with --make, or grade what came back with --score."""
    from leakgauge.audit.grading import grade
    from leakgauge.data import read_images
    from leakgauge.encodings.challenge import make_challenge
    from leakgauge.errors import InvalidCase

    if (make is None) == (score is None):
        raise InvalidCase("A challenge is either made or graded; give one of --make and --score.")
    if score is not None:
        crowd = None if decoys is None else read_images(decoys)
        with ticking("grading") as progress:
            row = grade(score, secret, decoys=crowd, progress=progress).to_dict()
        print_rows([row if as_json else rounded(row)], "instahide challenge", as_json, None)
        return
    assert make is not None
    chosen, patches = scheme_of(scheme, public)
    keys = keys_of(insecure_seed)
    images, classes = images_of(dataset, data_root, split)
    if not 1 <= private <= len(images):
        raise InvalidCase(f"Cannot hide {private} images of {len(images)}; choose --private between 1 and that.")
    hidden = images[keys.uniform(len(images)).argsort()[:private]]
    manifest = make_challenge(make, secret, chosen, hidden, classes=classes, copies=copies, keys=keys, public=patches)
    shown = ("scheme", "private_images", "encodings", "secure_keys", "digest")
    row = {"folder": str(make), "secret": str(secret), **(manifest if as_json else {x: manifest[x] for x in shown})}
    print_rows([row], "instahide challenge", as_json, insecure_seed)
