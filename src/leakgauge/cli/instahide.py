"""``leakgauge instahide``: encrypt with it, estimate it, and set challenges for those who attack it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakgauge.cli.instahide_attack import attack
from leakgauge.cli.options import JsonFlag, SchemeOption
from leakgauge.cli.output import loaded, print_json, print_rows, stderr, stdout
from leakgauge.errors import InvalidCase

if TYPE_CHECKING:
    from torch import Tensor

    from leakgauge.encodings import KeySource, Scheme
    from leakgauge.types import Batch

group = typer.Typer(
    help="Encrypt training images with Mixup or InstaHide, and measure what that hides.", no_args_is_help=True
)

DatasetOption = Annotated[str, typer.Option("--dataset", help="photos, digits, cifar10, npz:file='x.npz', ...")]
RootOption = Annotated[Path | None, typer.Option("--data-root", help="Folder that holds the dataset's files.")]
SplitOption = Annotated[str, typer.Option("--split", help="Which images of the dataset: train or test.")]
PublicOption = Annotated[
    Path | None, typer.Option("--public", help="Public images, as .safetensors; see `leakgauge instahide public`.")
]
KeySeedOption = Annotated[
    int | None,
    typer.Option("--insecure-seed", help="Repeat the keys by this seed: for tests and studies, never for real images."),
]

CAVEAT = (
    "This is what one attack on one encoding costs, not what every attack must: encodings of the same image give each "
    "other away, and attacks on many of them together guess neither public images nor masks."
)


@group.command()
@loaded
def encrypt(
    dataset: DatasetOption = "photos",
    data_root: RootOption = None,
    split: SplitOption = "train",
    scheme: SchemeOption = "inside:k=4",
    public: PublicOption = None,
    copies: Annotated[int, typer.Option(help="Encryptions of each image, each by a new key.")] = 1,
    insecure_seed: KeySeedOption = None,
    out: Annotated[Path, typer.Option("--out", help="Where the encodings go, as .safetensors.")] = Path(
        "encrypted.safetensors"
    ),
    secret: Annotated[
        Path | None, typer.Option(help="Where the key goes, as .safetensors; without it, the key is thrown away.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Encrypt a dataset: encodings in random order, with their class weights."""
    import torch

    from leakgauge.encodings import encrypt as encrypted
    from leakgauge.encodings.schemes import shuffle
    from leakgauge.files import write_tensors
    from leakgauge.report.progress import training_progress

    if secret is not None and secret.resolve() == out.resolve():
        raise InvalidCase(f"The key would overwrite the encodings in {out}; name another file with --secret.")
    chosen, patches = _scheme_of(scheme, public)
    keys = _keys_of(insecure_seed)
    with training_progress(stderr(), "images", "encrypting") as step:
        private, classes = _images_of(dataset, data_root, split)
        started = time.perf_counter()
        encoded, key = encrypted(
            chosen, private, classes=classes, public=patches, copies=copies, keys=keys, progress=step
        )
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
    print_rows([row if as_json else _rounded(row)], "instahide encrypt", as_json, insecure_seed)


@group.command()
@loaded
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
    insecure_seed: KeySeedOption = None,
    out: Annotated[Path, typer.Option("--out", help="Where the patches go, as .safetensors.")] = Path(
        "public.safetensors"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Prepare a public set for cross-dataset InstaHide: random crops, flat ones left out. Done once, then kept."""

    from leakgauge.data import PictureFolder
    from leakgauge.encodings.public_patches import Patches, cached_patches
    from leakgauge.report.progress import training_progress

    if (folder is None) == (dataset is None):
        raise InvalidCase("Patches are cut from one source; name a folder of images, or a dataset with --dataset.")
    patches = Patches(size, crop, key_points)
    images: Sequence[Tensor]
    if folder is not None:
        images, source = PictureFolder(folder, greyscale=greyscale), str(folder)
    else:
        images, source = list(_images_of(str(dataset), data_root, split)[0].inputs), f"{dataset} ({split})"
    keys = _keys_of(insecure_seed)
    started = time.perf_counter()
    with training_progress(stderr(), "patches", "cutting") as progress:
        found = cached_patches(out, patches, images, count, source=source, keys=keys, progress=progress)
    seconds = round(time.perf_counter() - started, 3)
    row = {"file": str(out), "patches": len(found), "size": size, "images": len(images), "seconds": seconds}
    print_rows([row], "instahide public", as_json, insecure_seed)


@group.command()
@loaded
def estimate(
    public: Annotated[float, typer.Option(help="Size of the public set, such as 1e7.")],
    k: Annotated[int, typer.Option(help="Images mixed into an encoding.")] = 6,
    private: Annotated[int, typer.Option(help="How many of them are private.")] = 2,
    pixels: Annotated[int, typer.Option(help="Channels x height x width.")] = 3 * 32 * 32,
    per_second: Annotated[float, typer.Option(help="Guesses an attacker makes a second.")] = 1e9,
    as_json: JsonFlag = False,
) -> None:
    """The hardness estimate of Huang et al. [2020, section 4.2], and what it does not say."""
    from leakgauge.encodings.estimate import Hardness

    if not 0 < per_second < math.inf:
        raise InvalidCase(f"An attacker cannot make {per_second:g} guesses a second; give a positive number.")
    costs = Hardness(public, k, private, pixels).costs
    if as_json:
        rows = [
            {"way": cost.way, "log10_work": cost.log10_work, "log10_years": cost.log10_years(per_second)}
            for cost in costs
        ]
        print_json("instahide estimate", None, rows, caveat=CAVEAT)
        return
    shown = [
        {"way": cost.way, "work": f"10^{cost.log10_work:.1f}", "years": f"10^{cost.log10_years(per_second):.1f}"}
        for cost in costs
    ]
    print_rows(shown, "instahide estimate", as_json=False)
    stdout().print(CAVEAT)


@group.command()
@loaded
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
    insecure_seed: KeySeedOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Set a challenge with --make, or grade what came back with --score."""
    from leakgauge.audit.grading import grade
    from leakgauge.data import read_images
    from leakgauge.encodings.challenge import make_challenge
    from leakgauge.report.progress import training_progress

    if (make is None) == (score is None):
        raise InvalidCase("A challenge is either made or graded; give one of --make and --score.")
    if score is not None:
        crowd = None if decoys is None else read_images(decoys)
        with training_progress(stderr(), "submission", "grading") as progress:
            row = grade(score, secret, decoys=crowd, progress=progress).to_dict()
        # One line for each score: side by side they are wider than a terminal.
        lines = [{"score": name, "value": value} for name, value in _rounded(row).items()]
        print_rows([row] if as_json else lines, "instahide challenge", as_json, None)
        return
    assert make is not None
    chosen, patches = _scheme_of(scheme, public)
    keys = _keys_of(insecure_seed)
    images, classes = _images_of(dataset, data_root, split)
    if not 1 <= private <= len(images):
        raise InvalidCase(f"Cannot hide {private} images of {len(images)}; choose --private between 1 and that.")
    hidden = images[keys.uniform(len(images)).argsort()[:private]]
    manifest = make_challenge(make, secret, chosen, hidden, classes=classes, copies=copies, keys=keys, public=patches)
    shown = ("scheme", "private_images", "encodings", "secure_keys", "digest")
    row = {"folder": str(make), "secret": str(secret), **(manifest if as_json else {x: manifest[x] for x in shown})}
    print_rows([row], "instahide challenge", as_json, insecure_seed)


group.command()(loaded(attack))


def _images_of(dataset: str, root: Path | None, split: str) -> tuple[Batch, int]:
    """The images of one split with their classes, and how many classes there are."""
    from leakgauge.config import build_dataset

    if split not in ("train", "test"):
        raise InvalidCase(f"There is no split {split!r}; choose from train, test.")
    found = build_dataset(dataset, root)
    batch: Batch = getattr(found, split)
    if len(batch) == 0:
        raise InvalidCase(f"The {split} split of {found.name!r} is empty here; choose the other with --split.")
    return batch, found.num_classes


def _scheme_of(text: str, public: Path | None) -> tuple[Scheme, Tensor | None]:
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


def _keys_of(seed: int | None) -> KeySource:
    """Secure keys unless a seed is given, which is said aloud."""
    from leakgauge.encodings import SecureKeys, SeededKeys
    from leakgauge.randomness import seeded

    if seed is None:
        return SecureKeys()
    stderr().print("[bold yellow]INSECURE[/] keys from a seed: for tests and studies only.", soft_wrap=True)
    return SeededKeys(seeded(seed, "instahide"))


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """For reading: numbers to three digits after the point, and a dash for what was not measured."""
    return {
        name: "-" if value is None else f"{value:.3f}" if isinstance(value, float) else value
        for name, value in row.items()
    }
