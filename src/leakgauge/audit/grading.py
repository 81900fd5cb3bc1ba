"""The grade of images that were submitted to a challenge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge.data import read_images
from leakgauge.encodings.challenge import read_secret
from leakgauge.errors import InvalidFile
from leakgauge.metrics import PSNR, SSIM, Comparison, Identification, align
from leakgauge.progress import Progress, Tick, silent
from leakgauge.structural_similarity import similarity, windows
from leakgauge.types import Batch, Outcome, Reconstruction


@dataclass(frozen=True)
class Grade:
    """What a submission recovered of each private image; NaN where nothing was submitted for it.

    ``psnr``, ``ssim`` and ``identification`` after an exclusive matching; ``best_ssim`` is the largest with any
    submitted image, whose mean was the score of the 2020 challenge. ``null`` holds the first three for each submitted
    image against another private image than its own; they are NaN if there is no other.
    """

    psnr: Tensor
    ssim: Tensor
    identification: Tensor
    best_ssim: Tensor
    null: Mapping[str, Tensor]
    submitted: int
    decoys: int
    chance: float

    def to_dict(self) -> dict[str, Any]:
        """Means over the private images; what was not submitted counts as not identified, and is in no other mean."""
        return {
            "private_images": len(self.psnr),
            "submitted": self.submitted,
            "psnr": _mean(self.psnr),
            "psnr_null": _mean(self.null["psnr"]),
            "ssim": _mean(self.ssim),
            "ssim_null": _mean(self.null["ssim"]),
            "identification": float(self.identification.nan_to_num(0.0).mean()),
            "identification_null": _mean(self.null["identification"]),
            "chance": None if math.isnan(self.chance) else self.chance,
            "decoys": self.decoys,
            "mean_of_max_ssim": _mean(self.best_ssim),
        }


def grade(
    submission: Path,
    secret_folder: Path,
    *,
    decoys: Tensor | None = None,
    progress: Progress = silent,
) -> Grade:
    """Grade recovered images; without ``decoys`` an image is identified among the private ones."""
    truth, images = read_secret(secret_folder)[0], read_images(submission)
    if images.shape[1:] != truth.inputs.shape[1:]:
        raise InvalidFile(
            f"{submission} holds images {tuple(images.shape[1:])}, but the private ones are "
            f"{tuple(truth.inputs.shape[1:])}; submit n c h w of that size."
        )
    matched = align(Reconstruction(images, None, Outcome.SOLVED), truth, decoys)
    identification, chance = _identify(matched)
    return Grade(
        psnr=PSNR()(matched),
        ssim=SSIM()(matched),
        identification=identification,
        best_ssim=_best_ssim(truth, images, progress),
        null=_null(matched),
        submitted=len(images),
        decoys=len(truth) - 1 if decoys is None else len(decoys),
        chance=chance,
    )


def _null(matched: Comparison) -> dict[str, Tensor]:
    """The scores of every submitted image against the private image that comes after its own."""
    if len(matched.originals) < 2:
        nothing = torch.full((len(matched.originals),), torch.nan, dtype=torch.float64)
        return {"psnr": nothing, "ssim": nothing, "identification": nothing}
    other = replace(matched, originals=matched.originals.roll(1, dims=0))
    return {"psnr": PSNR()(other), "ssim": SSIM()(other), "identification": _identify(other)[0]}


def _identify(matched: Comparison) -> tuple[Tensor, float]:
    if matched.distractors is not None:
        return Identification()(matched), Identification().chance_after_matching(matched)
    originals, scores = matched.originals, []
    for row in range(len(originals)):
        others = torch.cat([originals[:row], originals[row + 1 :]])
        one = slice(row, row + 1)
        alone = Comparison(originals[one], matched.reconstructions[one], others, matched.true_labels[one], None)
        scores.append(Identification()(alone))
    # The matching alone identifies as often as it likes: among themselves there is no chance level to speak of.
    return torch.cat(scores), float("nan")


def _best_ssim(truth: Batch, images: Tensor, progress: Progress) -> Tensor:
    originals, submitted, best = windows(truth.inputs.double()), windows(images.double()), []
    for row in range(len(truth)):
        best.append(similarity(originals.part(row, row + 1), submitted).max())
        progress(Tick(row + 1, (row + 1) / len(truth), math.nan))
    return torch.stack(best)


def _mean(scores: Tensor) -> float | None:
    mean = float(scores.nanmean())
    return None if math.isnan(mean) else mean
