"""An attack on published encodings, from what was published to what came back, with a ledger of what it was told."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Generator, Tensor

from leakgauge.attacks.encodings.base import EncodingAttack
from leakgauge.catalogue import ENCODING_ATTACKS
from leakgauge.encodings.challenge import private_part, read_secret
from leakgauge.errors import InvalidCase
from leakgauge.metrics import PSNR, SSIM, Comparison
from leakgauge.metrics.public_found import hit_members
from leakgauge.progress import Progress, silent
from leakgauge.protocol.encoded_set import EncodingObservation
from leakgauge.protocol.facts import Fact, Subject

_NO_AUXILIARY = "none: clustering then takes what looks more like a photograph, and all images may be negatives"


@dataclass(frozen=True)
class Recovered:
    """What came back, row by row: an encoding, the same without its mask, and the image recovered from it.

    ``by_encoding``: there is one image for each encoding, of all its private images together; else one for each private
    image, from many encodings, of which the one with most of it is shown. ``coefficients`` are t x images, or those of
    the public images ``named`` in each encoding.
    """

    attack: str
    images: Tensor
    encodings: Tensor
    demasked: Tensor
    coefficients: Tensor
    ledger: tuple[Fact, ...]
    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    labels: Tensor | None = None
    named: Tensor | None = None

    @property
    def by_encoding(self) -> bool:
        return self.named is not None

    def tensors(self) -> dict[str, Tensor]:
        """For a file: ``images`` are what `grade` reads."""
        more = {"labels": self.labels, "named": self.named}
        kept = {"images": self.images, "demasked": self.demasked, "coefficients": self.coefficients}
        return kept | {name: tensor for name, tensor in more.items() if tensor is not None}


def recover(
    name: str, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
) -> Recovered:
    """Run one of `ENCODING_ATTACKS`."""
    if name not in ENCODING_ATTACKS:
        raise InvalidCase(f"There is no attack {name!r} on encodings; choose from {', '.join(ENCODING_ATTACKS)}.")
    attack: EncodingAttack = ENCODING_ATTACKS[name]()
    begun = time.perf_counter()
    found = attack(observation, generator=generator, progress=progress)
    seconds = time.perf_counter() - begun
    decoding = found.decoding
    assert found.inputs is not None
    assert decoding is not None
    return Recovered(
        repr(attack),
        found.inputs,
        decoding.encodings,
        decoding.demasked,
        decoding.coefficients,
        ledger_of(observation, attack.alignment),
        seconds,
        found.facts,
        found.labels,
        decoding.public,
    )


def ledger_of(observation: EncodingObservation, alignment: str = "") -> tuple[Fact, ...]:
    """Everything that an attacker was given, and what was kept."""
    seen, shape = observation, tuple(observation.encoded.images.shape[1:])
    counts = None if seen.class_counts is None else seen.class_counts.tolist()
    mask = "masked" if seen.signed else "not masked"
    mixed = f"k = {seen.k} images in each, {seen.private_per_encoding} of them private"
    return (
        Fact(Subject.ENCODINGS, True, f"{len(seen.encoded)} of shape {shape}, {mixed}, {mask}"),
        Fact(Subject.ENCODING_LABELS, True, "the coefficients of the private images, by class"),
        _told(Subject.NUM_PRIVATE, seen.num_private, "read from the labels if needed"),
        _told(Subject.CLASS_COUNTS, counts, "read from the labels if needed"),
        _told(Subject.PUBLIC_IMAGES, None if seen.public is None else len(seen.public), "none"),
        _told(Subject.SIMILAR_IMAGES, None if seen.auxiliary is None else len(seen.auxiliary), _NO_AUXILIARY),
        Fact(Subject.ALIGNMENT, True, alignment),
        Fact(Subject.KEYS, False, "neither masks and coefficients nor which images are mixed"),
    )


def score_by_encoding(recovered: Recovered, observation: EncodingObservation, secret: Path) -> dict[str, Any]:
    """Scores of one image for each encoding against the mixture of its private images, and of the public ones named.

    ``null`` scores the same images against those of another encoding.
    """
    assert recovered.named is not None
    private, key = read_secret(secret)
    truth, mixing = private.inputs, key.mixing
    own = observation.private_per_encoding
    targets = private_part(truth, mixing, own)
    others = targets.roll(1, dims=0)
    members = mixing.indices[:, own:] - len(truth)
    return {
        "encodings": len(targets),
        "psnr": _mean(PSNR()(_pairs(recovered.images, targets))),
        "psnr_null": _mean(PSNR()(_pairs(recovered.images, others))),
        "ssim": _mean(SSIM()(_pairs(recovered.images, targets))),
        "ssim_null": _mean(SSIM()(_pairs(recovered.images, others))),
        "public_found": _mean(hit_members(recovered.named, members)),
        "public_found_null": _mean(hit_members(recovered.named, members.roll(1, dims=0))),
    }


def originals_beside(recovered: Recovered, observation: EncodingObservation, secret: Path) -> Tensor:
    """The truth beside every row: the nearest private image, each used once, or the private part of the encoding."""
    private, key = read_secret(secret)
    truth, mixing = private.inputs, key.mixing
    if recovered.by_encoding:
        return private_part(truth, mixing, observation.private_per_encoding)
    errors = torch.cdist(recovered.images.flatten(1).double(), truth.flatten(1).double()).square()
    rows, columns = map(torch.from_numpy, linear_sum_assignment(errors.numpy()))
    beside = torch.full_like(recovered.images, torch.nan)
    beside[rows] = truth[columns].to(beside)
    return beside


def _told(subject: Subject, value: object, otherwise: str) -> Fact:
    return Fact(subject, value is not None, otherwise if value is None else f"given: {value}")


def _pairs(images: Tensor, originals: Tensor) -> Comparison:
    return Comparison(originals.float(), images.float(), None, torch.zeros(len(originals)), None)


def _mean(values: Tensor) -> float:
    return float(values.double().mean())
