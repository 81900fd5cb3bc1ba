"""The grade of images that were submitted to a challenge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge.audit.crowd import Pool, draw_crowd
from leakgauge.audit.verdict import SIGNIFICANT, Verdict, holm
from leakgauge.data import read_images
from leakgauge.encodings.challenge import read_secret
from leakgauge.errors import InvalidFile
from leakgauge.metrics import PSNR, SSIM, Comparison, Identification, align
from leakgauge.metrics.evidence import weigh_evidence
from leakgauge.progress import Progress, Tick, silent
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace
from leakgauge.structural_similarity import similarity, windows
from leakgauge.types import Batch, Outcome, Reconstruction

_CROWD = 99


@dataclass(frozen=True)
class Grade:
    """What a submission recovered of each private image; NaN where nothing was submitted for it.

    ``psnr``, ``ssim`` and ``identification`` after an exclusive matching; ``best_ssim`` is the largest with any
    submitted image, whose mean was the score of the 2020 challenge. ``null`` holds the first three for each submitted
    image against another private image than its own; they are NaN if there is no other.

    ``p`` is the evidence for each private image that it was recovered, by the rule of every audit: against a crowd of
    strangers, the decoys or else photographs and augmented copies, and corrected over the images.
    """

    psnr: Tensor
    ssim: Tensor
    identification: Tensor
    best_ssim: Tensor
    null: Mapping[str, Tensor]
    submitted: int
    decoys: int
    chance: float
    p: tuple[float, ...]

    @property
    def recovered(self) -> tuple[bool, ...]:
        """Which private images were, beyond doubt."""
        return tuple(one <= SIGNIFICANT for one in self.p)

    @property
    def verdict(self) -> Verdict:
        """Of a submission that recovered nothing nothing follows: who made it may not have known how."""
        found = sum(self.recovered)
        if not found:
            return Verdict.INCONCLUSIVE
        return Verdict.LEAKS if 2 * found >= len(self.p) else Verdict.LEAKS_PARTLY

    def to_dict(self) -> dict[str, Any]:
        """Means over the private images; what was not submitted counts as not identified, and is in no other mean."""
        return {
            "private_images": len(self.psnr),
            "submitted": self.submitted,
            "recovered": sum(self.recovered),
            "verdict": self.verdict.value,
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
        p=holm(weigh_evidence(images, truth.inputs, _strangers(truth, decoys), ImageSpace.of(truth.inputs)).p),
    )


def _strangers(truth: Batch, decoys: Tensor | None) -> Tensor:
    pool = None if decoys is None else Pool(decoys, None, "of the decoys")
    least = _CROWD if decoys is None else max(len(decoys), 1)
    space, generator = ImageSpace.of(truth.inputs), seeded(0, "grading")
    found = draw_crowd(space, truth, pool, tests=len(truth), at_least=least, generator=generator).inputs
    return truth.inputs[:0] if found is None else found


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
