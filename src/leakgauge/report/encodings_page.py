"""One self-contained page of an attack on encodings: published, demasked, recovered and original, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge.audit.grading import Grade
from leakgauge.audit.recovering import Recovered
from leakgauge.audit.verdict import Verdict
from leakgauge.files import write_text
from leakgauge.fingerprint import environment as surroundings
from leakgauge.metrics import PSNR, Comparison, Identification, summarise
from leakgauge.report.page import FIRST_COLUMNS, render_page
from leakgauge.report.pictures import Line, Tile, data_uri

MOST = 64
"""So many images are in the page; all are in the file beside it."""


def render(
    recovered: Recovered,
    *,
    command: str,
    originals: Tensor | None = None,
    scores: Mapping[str, Any] | None = None,
    grade: Grade | None = None,
) -> str:
    """The page as text; the same result gives the same text, but for the time it took."""
    lines = _lines(recovered, originals)
    tone = _tone(grade)
    claim, *sentences = headline(recovered, scores, grade)
    height, width = recovered.images.shape[-2:]
    return render_page(
        "encodings.html",
        claim=claim,
        sentences=sentences,
        tone=tone,
        banner=None,
        context=[recovered.ledger[0].detail],
        lines=lines,
        columns=max(len(line.tiles) for line in lines),
        first=FIRST_COLUMNS,
        ratio=f"{width} / {height}",
        truth_known=originals is not None,
        labels=[],
        left_out=[],
        ledgers={recovered.ledger: [""]},
        curves=[],
        numbers=[(name.replace("_", " "), _number(value)) for name, value in (scores or {}).items()],
        by_encoding=recovered.by_encoding,
        command=command,
        setup=[
            ("Attack", recovered.attack),
            # What is said in words is in the ledger.
            *((name.capitalize(), _number(one)) for name, one in recovered.facts.items() if not isinstance(one, str)),
            ("Time of the attack", f"{recovered.seconds:.1f} s"),
            *((name, str(value)) for name, value in surroundings().items()),
        ],
    )


def write_page(path: Path, text: str) -> Path:
    write_text(path, text)
    return path


def headline(recovered: Recovered, scores: Mapping[str, Any] | None, grade: Grade | None) -> list[str]:
    """What happened, in sentences, the most telling first."""
    count = len(recovered.images)
    if scores is None:
        what = "the private part of each encoding" if recovered.by_encoding else f"{count} images"
        return [f"The attack returned {what}.", "There was no secret to compare it with, so leakage was not measured."]
    if recovered.by_encoding:
        found = 100 * float(scores["public_found"])
        return [
            f"The attack named {found:.0f} % of the public images in {count} encodings.",
            f"What was left comes to {scores['psnr']:.1f} dB of the private part (null {scores['psnr_null']:.1f} dB).",
        ]
    assert grade is not None
    total, hits = len(grade.psnr), round(float(grade.identification.nan_to_num(0.0).sum()))
    crowd = f"{grade.decoys} decoys" if grade.decoys_given else "the private images themselves"
    return [
        f"These encodings gave away {hits} of {total} private images.",
        f"So many are nearer to their original than to {crowd}; the mean PSNR is {_number(scores['psnr'])} dB, and "
        f"against another private image {_number(scores['psnr_null'])} dB.",
    ]


def _tone(grade: Grade | None) -> Verdict:
    """By the 95 % interval of the share that was picked out of a crowd, if there was one."""
    if grade is None or not grade.decoys_given:
        return Verdict.NOT_JUDGED
    share = summarise(grade.identification.nan_to_num(0.0), Identification())
    if share.low >= 0.5:
        return Verdict.LEAKS
    return Verdict.LEAKS_PARTLY if share.low > grade.chance else Verdict.NO_LEAK_FOUND


def _lines(recovered: Recovered, originals: Tensor | None) -> list[Line]:
    captions = [""] * len(recovered.images)
    if originals is not None:
        captions = [_decibels(one, beside) for one, beside in zip(recovered.images, originals)]
    lines = [
        ("Encodings", "what was published", recovered.encodings, None),
        ("Demasked", "with the signs that the attack believes in", recovered.demasked, None),
        ("Recovered", "what the attack makes of them", recovered.images, captions),
    ]
    if originals is not None:
        lines.append(("Originals", "what should have stayed on the device", originals, None))
    return [Line(title, detail, None, _tiles(title, images, words)) for title, detail, images, words in lines]


def _tiles(title: str, images: Tensor, captions: list[str] | None) -> tuple[Tile, ...]:
    return tuple(
        Tile(source, f"{title}, image {number}", captions[number - 1] if captions else "")
        if (source := data_uri(image)) is not None
        else Tile(None, "nothing recovered for it" if title == "Originals" else "not finite", "")
        for number, image in enumerate(images[:MOST], start=1)
    )


def _decibels(image: Tensor, original: Tensor) -> str:
    if not bool(torch.isfinite(original).all()):
        return ""
    pair = Comparison(original[None].float(), image[None].float(), None, torch.zeros(1), None)
    return f"{float(PSNR()(pair)):.1f} dB"


def _number(value: object) -> str:
    return "not measured" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
