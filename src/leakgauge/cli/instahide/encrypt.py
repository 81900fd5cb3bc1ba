"""``leakgauge instahide encrypt``."""

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
)
from leakgauge.cli.options import JsonFlag
from leakgauge.cli.output import print_rows


def encrypt(
    dataset: DatasetOption = "photos",
    data_root: RootOption = None,
    split: SplitOption = "train",
    scheme: SchemeOption = "inside:k=4",
    public: PublicOption = None,
    copies: Annotated[int, typer.Option(help="Encryptions of each image, each by a new key.")] = 1,
    insecure_seed: SeedOption = None,
    out: Annotated[Path, typer.Option("--out", help="Where the encodings go, as .safetensors.")] = Path(
        "encrypted.safetensors"
    ),
    secret: Annotated[
        Path | None, typer.Option(help="Where the key goes, as .safetensors; without it, the key is thrown away.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Encrypt a dataset: encodings in random order, with their class weights."""
    import time

    import torch

    from leakgauge.encodings import encrypt as encrypted
    from leakgauge.encodings.schemes import shuffle
    from leakgauge.errors import InvalidCase
    from leakgauge.files import write_tensors

    if secret is not None and secret.resolve() == out.resolve():
        raise InvalidCase(f"The key would overwrite the encodings in {out}; name another file with --secret.")
    chosen, patches = scheme_of(scheme, public)
    keys = keys_of(insecure_seed)
    private, classes = images_of(dataset, data_root, split)
    started = time.perf_counter()
    encoded, key = encrypted(chosen, private, classes=classes, public=patches, copies=copies, keys=keys)
    encoded, key = shuffle(encoded, key, keys=keys)
    seconds = time.perf_counter() - started
    facts = {"scheme": repr(chosen), "secure_keys": str(keys.secure).lower()}
    write_tensors(out, {"images": encoded.images, "labels": encoded.labels}, facts)
    if secret is not None:
        tensors = {"coefficients": key.mixing.coefficients, "indices": key.mixing.indices}
        write_tensors(secret, {**tensors, "flipped": key.flipped.to(torch.uint8)}, facts)
        secret.chmod(0o600)
    row = {
        "file": str(out),
        "scheme": repr(chosen),
        "images": len(private),
        "encodings": len(encoded),
        "secure_keys": keys.secure,
        "seconds": seconds,
    }
    print_rows([row if as_json else rounded(row)], "instahide encrypt", as_json, insecure_seed)
