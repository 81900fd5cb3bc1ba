"""A challenge for attackers: encodings to publish, the secret to keep, and the grading of what comes back."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge.data import read_images
from leakgauge.encodings.keys import KeySource
from leakgauge.encodings.schemes import Scheme, encrypt, shuffled
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import read_tensors, writable_folder, write_tensors, write_text
from leakgauge.metrics import PSNR, SSIM, Comparison, Identification, align
from leakgauge.protocol.encoded_set import EncodedSet, EncodingObservation
from leakgauge.structural_similarity import similarity, windows
from leakgauge.types import Batch, Outcome, Reconstruction
from leakgauge.version import VERSION

ENCODINGS, PUBLIC, MANIFEST, SECRET = (
    "encodings.safetensors",
    "public.safetensors",
    "challenge.json",
    "secret.safetensors",
)

Step = Callable[[int, int], None]


def make_challenge(
    folder: Path,
    secret_folder: Path,
    scheme: Scheme,
    private: Batch,
    *,
    classes: int,
    copies: int,
    keys: KeySource,
    public: Tensor | None = None,
) -> dict[str, Any]:
    """Write encodings, labels and a manifest to ``folder``, the rest to ``secret_folder``; returns the manifest."""
    _check_apart(folder, secret_folder)
    encoded, secret = shuffled(
        *encrypt(scheme, private, classes=classes, public=public, copies=copies, keys=keys), keys=keys
    )
    manifest = {
        "scheme": repr(scheme),
        "k": scheme.k,
        "private_per_encoding": scheme.private_per_encoding,
        "signed": scheme.signed,
        "private_images": len(private),
        "encodings": len(encoded),
        "encodings_per_image": copies,
        "classes": classes,
        "image_shape": list(encoded.images.shape[1:]),
        "public_images": 0 if public is None else len(public),
        "secure_keys": keys.secure,
        "digest": digest(encoded),
        "version": VERSION,
    }
    for where in (folder, secret_folder):
        writable_folder(where)
    os.chmod(secret_folder, 0o700)
    flipped = secret.flipped.to(torch.uint8)
    write_tensors(
        secret_folder / SECRET,
        {
            "images": private.inputs,
            "labels": private.labels,
            "coefficients": secret.mixing.coefficients,
            "indices": secret.mixing.indices,
            "flipped": flipped,
        },
        {"digest": str(manifest["digest"])},
    )
    write_tensors(folder / ENCODINGS, {"images": encoded.images, "labels": encoded.labels})
    if public is not None:
        write_tensors(folder / PUBLIC, {"images": public})
    # Last: a folder with a manifest is whole.
    write_text(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    return manifest


def read_challenge(folder: Path) -> EncodingObservation:
    """What an attacker sees of a challenge."""
    manifest = _manifest(folder)
    tensors, _ = read_tensors(folder / ENCODINGS)
    try:
        encoded = EncodedSet(tensors["images"], tensors["labels"])
    except KeyError as error:
        raise InvalidFile(f"{folder / ENCODINGS} holds no {error}; make the challenge again.") from error
    if digest(encoded) != manifest["digest"]:
        raise InvalidFile(f"The encodings in {folder} are not those of its {MANIFEST}; make the challenge again.")
    return EncodingObservation(
        encoded=encoded,
        k=int(manifest["k"]),
        private_per_encoding=int(manifest["private_per_encoding"]),
        signed=bool(manifest["signed"]),
        num_private=int(manifest["private_images"]),
        public=read_tensors(folder / PUBLIC)[0]["images"] if manifest["public_images"] else None,
    )


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

    @property
    def decoys_given(self) -> bool:
        """Whether images were told from a crowd of others, and not from each other."""
        return not math.isnan(self.chance)

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
    progress: Step = lambda done, total: None,
) -> Grade:
    """Grade recovered images; without ``decoys`` an image is identified among the private ones."""
    tensors, _ = read_tensors(secret_folder / SECRET)
    if not {"images", "labels"} <= set(tensors):
        raise InvalidFile(f"{secret_folder / SECRET} is no secret of a challenge; make the challenge again.")
    truth = Batch(tensors["images"], tensors["labels"])
    images = read_images(submission)
    if images.shape[1:] != truth.inputs.shape[1:]:
        raise InvalidFile(
            f"{submission} holds images {tuple(images.shape[1:])}, but the private ones are "
            f"{tuple(truth.inputs.shape[1:])}; submit n c h w of that size."
        )
    matched = align(Reconstruction(images, None, Outcome.SOLVED), truth, decoys)
    identification, chance = _identified(matched)
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


def digest(encoded: EncodedSet) -> str:
    """What names a challenge: a hash of its encodings and labels."""
    found = hashlib.blake2b(digest_size=16)
    for tensor in (encoded.images, encoded.labels):
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def _null(matched: Comparison) -> dict[str, Tensor]:
    """The scores of every submitted image against the private image that comes after its own."""
    if len(matched.originals) < 2:
        nothing = torch.full((len(matched.originals),), torch.nan, dtype=torch.float64)
        return {"psnr": nothing, "ssim": nothing, "identification": nothing}
    other = replace(matched, originals=matched.originals.roll(1, dims=0))
    return {"psnr": PSNR()(other), "ssim": SSIM()(other), "identification": _identified(other)[0]}


def _identified(matched: Comparison) -> tuple[Tensor, float]:
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


def _best_ssim(truth: Batch, images: Tensor, progress: Step) -> Tensor:
    originals, submitted, best = windows(truth.inputs.double()), windows(images.double()), []
    for row in range(len(truth)):
        best.append(similarity(originals.part(row, row + 1), submitted).max())
        progress(row + 1, len(truth))
    return torch.stack(best)


def _mean(scores: Tensor) -> float | None:
    mean = float(scores.nanmean())
    return None if math.isnan(mean) else mean


def _check_apart(folder: Path, secret_folder: Path) -> None:
    public, secret = folder.resolve(), secret_folder.resolve()
    if public == secret or public in secret.parents or secret in public.parents:
        raise InvalidCase(
            f"The secret in {secret_folder} would be published with {folder}; keep it in a folder outside."
        )


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InvalidFile(f"{folder} holds no readable {MANIFEST}; name the folder of a challenge.") from error
