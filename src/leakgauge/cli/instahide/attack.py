"""``leakgauge instahide attack``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from leakgauge.cli.instahide.common import SchemeOption, counting, rounded, scheme_named, ticking
from leakgauge.cli.options import JsonFlag, SeedOption
from leakgauge.cli.output import escaped, print_json, print_rows
from leakgauge.errors import InvalidCase

if TYPE_CHECKING:
    from torch import Tensor

    from leakgauge.audit.grading import Grade
    from leakgauge.audit.recovering import Recovered
    from leakgauge.protocol.encoded_set import EncodingObservation

FILE, FACTS, SHEET, PAGE = "recovered.safetensors", "attack.json", "recovered.png", "index.html"
_SHEET_IMAGES = 24
_SHOWN = (
    *("attack", "images", "seconds", "psnr", "psnr_null", "ssim"),
    *("identification", "identification_null", "public_found", "public_found_null"),
)


def attack(
    source: Annotated[Path, typer.Argument(help="Folder of a challenge, or a file of `instahide encrypt`.")],
    by: Annotated[
        str | None,
        typer.Option("--attack", help="clustering, published, public or aligned; public where --public is given."),
    ] = None,
    scheme: SchemeOption = "inside:k=4",
    public: Annotated[Path | None, typer.Option(help="The public images, as .npz or .safetensors.")] = None,
    auxiliary: Annotated[
        Path | None, typer.Option(help="Other images of the same kind, which the attacker is to have.")
    ] = None,
    private: Annotated[int | None, typer.Option(help="Tell the attacker how many private images there are.")] = None,
    class_counts: Annotated[str | None, typer.Option(help="Tell it how many of each class, such as 3,0,2.")] = None,
    labels_only: Annotated[
        bool, typer.Option("--labels-only", help="Do not tell it the number that a challenge's manifest gives.")
    ] = False,
    secret: Annotated[Path | None, typer.Option(help="The challenge's secret, to score what came back.")] = None,
    decoys: Annotated[
        Path | None, typer.Option(help="Images to tell recovered ones from; by default the auxiliary or public ones.")
    ] = None,
    seed: SeedOption = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for images, facts and the report.")] = Path("recovered"),
    as_json: JsonFlag = False,
) -> None:
    """Recover private images from published encodings, and show them beside what was published."""
    from leakgauge.audit.recovering import recover
    from leakgauge.data import read_images
    from leakgauge.encodings.challenge import read_secret
    from leakgauge.files import writable_folder, write_tensors, write_text
    from leakgauge.randomness import seeded
    from leakgauge.report.encodings_page import render, write_page

    observation = _observed(source, scheme, public, auxiliary, private, class_counts, labels_only)
    name = by or ("public" if public is not None else "clustering")
    crowd = _crowd(observation) if decoys is None else read_images(decoys)
    if secret is not None:
        read_secret(secret)  # what cannot be scored is better known before the attack
    writable_folder(out)
    with ticking(f"{name} attack") as progress:
        recovered = recover(name, observation, generator=seeded(seed or 0, "attack"), progress=progress)
    write_tensors(out / FILE, recovered.tensors())
    originals, scores, grade = _scored(recovered, observation, secret, crowd, out / FILE)
    options: dict[str, Any] = {"scheme": scheme if source.is_file() else None, "public": public, "auxiliary": auxiliary}
    options |= {"private": private, "class-counts": class_counts, "secret": secret, "decoys": decoys}
    command = _command(source, {"attack": name, **options, "seed": seed or 0}, labels_only)
    _write_sheet(recovered, originals, out / SHEET)
    write_page(out / PAGE, render(recovered, command=command, originals=originals, scores=scores, grade=grade))
    row = _row(recovered, name, scores)
    told = [fact.to_dict() for fact in recovered.ledger]
    payload = {"rows": [row], "assumptions": told, "facts": dict(recovered.facts), "attack": recovered.attack}
    write_text(out / FACTS, json.dumps({"command": command, **payload}, indent=1, allow_nan=False) + "\n")
    if as_json:
        print_json("instahide attack", seed or 0, [row], assumptions=told, facts=dict(recovered.facts))
        return
    print_rows([rounded({one: row[one] for one in _SHOWN if one in row})], "instahide attack", as_json=False)
    Console().print(f"Report: [bold]{escaped(str((out / PAGE).resolve()))}[/]", soft_wrap=True)


def _observed(
    source: Path,
    scheme: str,
    public: Path | None,
    auxiliary: Path | None,
    private: int | None,
    class_counts: str | None,
    labels_only: bool,
) -> EncodingObservation:
    """What the attacker sees and is told; nothing of the secret."""
    import torch

    from leakgauge.data import read_images
    from leakgauge.encodings.challenge import read_published

    seen = read_published(source, scheme_named(scheme))
    if labels_only:
        if private is not None or class_counts is not None:
            raise InvalidCase("--labels-only tells the attacker no number; leave out --private and --class-counts.")
        seen = replace(seen, num_private=None)
    if private is not None:
        seen = replace(seen, num_private=private)
    if class_counts is not None:
        counts = torch.tensor(_whole_numbers(class_counts))
        if private not in (None, int(counts.sum())):
            raise InvalidCase(f"--class-counts sum to {int(counts.sum())}, not to --private {private}; correct one.")
        seen = replace(seen, class_counts=counts, num_private=int(counts.sum()))
    if public is not None:
        seen = replace(seen, public=_of_size(read_images(public), seen, "--public"))
    own = seen.public  # who has public images has images of some kind
    if auxiliary is not None:
        own = _of_size(read_images(auxiliary), seen, "--auxiliary")
    return replace(seen, auxiliary=own)


def _command(source: Path, options: dict[str, Any], labels_only: bool) -> str:
    """What runs the attack again, without the folders of this machine."""
    given = {name: value.name if isinstance(value, Path) else value for name, value in options.items()}
    words = [f"--{name} {value}" for name, value in given.items() if value is not None]
    return " ".join(["leakgauge instahide attack", source.name, *words, *(["--labels-only"] if labels_only else [])])


def _whole_numbers(text: str) -> list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = [-1]
    if min(found) < 0:
        raise InvalidCase(f"--class-counts takes whole numbers such as 3,0,2, one for each class, got {text!r}.")
    return found


def _of_size(images: Tensor, seen: EncodingObservation, option: str) -> Tensor:
    wanted = tuple(seen.encoded.images.shape[1:])
    if tuple(images.shape[1:]) != wanted:
        raise InvalidCase(f"{option} holds images {tuple(images.shape[1:])}, but encodings are {wanted}; resize them.")
    return images


def _crowd(seen: EncodingObservation) -> Tensor | None:
    return seen.auxiliary if seen.auxiliary is not None else seen.public


def _scored(
    recovered: Recovered, seen: EncodingObservation, secret: Path | None, decoys: Tensor | None, file: Path
) -> tuple[Tensor | None, dict[str, Any] | None, Grade | None]:
    """Originals, scores and grade; None where there is no secret."""
    from leakgauge.audit.grading import grade
    from leakgauge.audit.recovering import originals_beside, score_by_encoding

    if secret is None:
        return None, None, None
    originals = originals_beside(recovered, seen, secret)
    if recovered.by_encoding:
        return originals, score_by_encoding(recovered, seen, secret), None
    with counting("grading") as progress:
        graded = grade(file, secret, decoys=decoys, progress=progress)
    return originals, graded.to_dict(), graded


def _row(recovered: Recovered, name: str, scores: dict[str, Any] | None) -> dict[str, Any]:
    from leakgauge.files import finite

    images = {"images": len(recovered.images), "seconds": round(recovered.seconds, 3)}
    return {"attack": name, **images, **{one: finite(value) for one, value in (scores or {}).items()}}


def _write_sheet(recovered: Recovered, originals: Tensor | None, path: Path) -> None:
    """Published, demasked, recovered and original, one line each."""
    from leakgauge.report.images import strip, write_strips

    lines = [recovered.encodings, recovered.demasked, recovered.images]
    shown = [*lines, *([] if originals is None else [originals.nan_to_num(1.0)])]
    write_strips([strip(*(images[:_SHEET_IMAGES].float() for images in shown))], path)
