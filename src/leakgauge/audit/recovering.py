"""An attack on published encodings, from what was published to what came back, with a ledger of what it was told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.alternation import expected
from leakgauge.attacks.encodings.algebra.whitening import Laplacian, centred, uncentred
from leakgauge.attacks.encodings.clustering.attack import Clustering, Unmixed
from leakgauge.attacks.encodings.clustering.published import PublishedRecipe
from leakgauge.attacks.encodings.search.crops import AlignedSearch
from leakgauge.attacks.encodings.search.phase_retrieval import PhaseRetrieval
from leakgauge.attacks.encodings.search.pursuit import PublicPursuit, Pursuit, remainder
from leakgauge.attacks.encodings.search.statistics import Correlation
from leakgauge.attacks.encodings.views import AsPublished, Squares
from leakgauge.encodings.challenge import SECRET, read_challenge
from leakgauge.encodings.schemes import Scheme
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import read_tensors
from leakgauge.metrics import PSNR, SSIM, Comparison
from leakgauge.progress import Progress, silent
from leakgauge.protocol.encoded_set import EncodedSet, EncodingObservation
from leakgauge.protocol.encoding import Mixing
from leakgauge.protocol.threat_model import Fact

_STRAIGHT = "assumed: images enter encodings uncropped and unmirrored"
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


Attack = Callable[[EncodingObservation, Generator, Progress], Recovered]


def read_published(source: Path, scheme: Scheme) -> EncodingObservation:
    """What an attacker sees of a challenge's folder, or of a file of encodings that were made by a scheme."""
    if source.is_dir():
        return read_challenge(source)
    tensors, facts = read_tensors(source)
    if not {"images", "labels"} <= set(tensors):
        raise InvalidFile(f"{source} holds no `images` with `labels`; write it with `leakgauge instahide encrypt`.")
    if facts.get("scheme", repr(scheme)) != repr(scheme):
        raise InvalidCase(f"{source} was encrypted by {facts['scheme']}, not by {scheme}; name that with --scheme.")
    encoded = EncodedSet(tensors["images"], tensors["labels"])
    return EncodingObservation(encoded, scheme.k, scheme.private_per_encoding, scheme.signed)


def recover(
    name: str, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
) -> Recovered:
    """Run one of `ATTACKS`."""
    if name not in ATTACKS:
        raise InvalidCase(f"There is no attack {name!r} on encodings; choose from {', '.join(ATTACKS)}.")
    return ATTACKS[name](observation, generator, progress)


def ledger_of(observation: EncodingObservation, alignment: str = _STRAIGHT) -> tuple[Fact, ...]:
    """Everything that an attacker was given, and what was kept."""
    seen, shape = observation, tuple(observation.encoded.images.shape[1:])
    counts = None if seen.class_counts is None else seen.class_counts.tolist()
    mask = "masked" if seen.signed else "not masked"
    mixed = f"k = {seen.k} images in each, {seen.private_per_encoding} of them private"
    return (
        Fact("Encodings", True, f"{len(seen.encoded)} of shape {shape}, {mixed}, {mask}"),
        Fact("Labels of encodings", True, "the coefficients of the private images, by class"),
        _told("Number of private images", seen.num_private, "read from the labels if needed"),
        _told("Images of each class", counts, "read from the labels if needed"),
        _told("Public images", None if seen.public is None else len(seen.public), "none"),
        _told("Images of the same kind", None if seen.auxiliary is None else len(seen.auxiliary), _NO_AUXILIARY),
        Fact("Alignment", True, alignment),
        Fact("Keys", False, "neither masks and coefficients nor which images are mixed"),
    )


def score_by_encoding(recovered: Recovered, observation: EncodingObservation, secret: Path) -> dict[str, Any]:
    """Scores of one image for each encoding against the mixture of its private images, and of the public ones named.

    ``null`` scores the same images against those of another encoding.
    """
    assert recovered.named is not None
    truth, mixing = read_secret(secret)
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
    truth, mixing = read_secret(secret)
    if recovered.by_encoding:
        return private_part(truth, mixing, observation.private_per_encoding)
    errors = torch.cdist(recovered.images.flatten(1).double(), truth.flatten(1).double()).square()
    rows, columns = map(torch.from_numpy, linear_sum_assignment(errors.numpy()))
    beside = torch.full_like(recovered.images, torch.nan)
    beside[rows] = truth[columns].to(beside)
    return beside


def private_part(truth: Tensor, mixing: Mixing, own: int) -> Tensor:
    """The private images of each encoding, mixed in their shares alone."""
    shares = mixing.coefficients[:, :own] / mixing.coefficients[:, :own].sum(dim=1, keepdim=True)
    return Mixing(shares, mixing.indices[:, :own]).mix(truth)


def read_secret(secret: Path) -> tuple[Tensor, Mixing]:
    """The private images of a challenge, and how they were mixed."""
    tensors, _ = read_tensors(secret / SECRET)
    if not {"images", "coefficients", "indices"} <= set(tensors):
        raise InvalidFile(f"{secret / SECRET} is no secret of a challenge; make the challenge again.")
    return tensors["images"], Mixing(tensors["coefficients"], tensors["indices"])


def _clustered(
    attack: Clustering | PublishedRecipe, observation: EncodingObservation, generator: Generator, progress: Progress
) -> Recovered:
    begun = time.perf_counter()
    found: Unmixed = attack.unmix(observation, generator=generator, progress=progress)
    seconds = time.perf_counter() - begun
    images, encodings = found.reconstruction.inputs, observation.encoded.images
    assert images is not None
    shown = found.coefficients.argmax(dim=0)
    demasked = encodings[shown]
    if observation.signed:
        mixtures = found.coefficients[shown].to(images) @ centred(images).flatten(1)
        sizes = centred(demasked).abs().flatten(1)
        demasked = uncentred(expected(mixtures, sizes)).view_as(demasked)
    return Recovered(
        repr(attack),
        images,
        encodings[shown],
        demasked,
        found.coefficients,
        ledger_of(observation),
        seconds,
        found.reconstruction.facts,
        found.reconstruction.labels,
    )


def _named(observation: EncodingObservation, generator: Generator, progress: Progress) -> Recovered:
    """Public images named and taken out; what is left of an encoding are its private ones."""
    public, encodings = _public_of(observation), observation.encoded.images
    begun = time.perf_counter()
    attack: PhaseRetrieval | PublicPursuit
    if observation.signed:
        attack = PhaseRetrieval()
        indices, coefficients, demasked, left = attack(observation, generator=generator, progress=progress)
    else:
        attack = PublicPursuit()
        pursuit = attack(observation, generator=generator, progress=progress)
        (indices, coefficients), demasked = pursuit, encodings
        left = remainder(encodings, public, pursuit)
    seconds = time.perf_counter() - begun
    ledger = ledger_of(observation)
    return Recovered(repr(attack), left, encodings, demasked, coefficients, ledger, seconds, named=indices)


def _aligned(observation: EncodingObservation, generator: Generator, progress: Progress) -> Recovered:
    """The same for public images that were cropped and mirrored at random: every alignment of each is tried.

    Under a mask squares are compared, whose shares are lam^2, and the signs are those of what was found.
    """
    public, encodings = _public_of(observation), observation.encoded.images
    begun = time.perf_counter()
    members = observation.k - observation.private_per_encoding
    attack = AlignedSearch(Correlation(Laplacian(), Squares() if observation.signed else AsPublished()), most=members)
    indices = attack(observation, generator=generator, progress=progress).indices
    sides = attack.statistic.fit(observation, generator=generator)
    crops = attack.best_crops(encodings, public[indices], sides)
    taken = sides.images(crops.flatten(0, 1)).unflatten(0, indices.shape).mT
    shares = torch.linalg.lstsq(taken, sides.encodings(encodings)[:, :, None]).solution[:, :, 0].clamp_min(0)
    demasked = encodings
    if observation.signed:
        shares = shares.sqrt()
        mixtures = torch.einsum("qa,qad->qd", shares, centred(crops).flatten(2))
        demasked = uncentred(expected(mixtures, centred(encodings).abs().flatten(1))).view_as(encodings)
    rows = torch.arange(indices.numel()).view_as(indices)
    left = remainder(demasked, crops.flatten(0, 1), Pursuit(rows, shares))
    seconds, count = time.perf_counter() - begun, len(attack.cropping.places)
    ledger = ledger_of(observation, f"of public images searched, {count} crops of each; assumed of private ones")
    return Recovered(repr(attack), left, encodings, demasked, shares, ledger, seconds, named=indices)


def _public_of(observation: EncodingObservation) -> Tensor:
    if observation.public is None or observation.k == observation.private_per_encoding:
        raise InvalidCase("There are no public images to name in these encodings; use the attack `clustering`.")
    return observation.public


ATTACKS: Mapping[str, Attack] = MappingProxyType(
    {
        "clustering": lambda *given: _clustered(Clustering(), *given),
        "published": lambda *given: _clustered(PublishedRecipe(), *given),
        "public": _named,
        "aligned": _aligned,
    }
)
"""``clustering`` and ``published`` restore the private images from many encodings and their labels; ``public`` names
the public images in each encoding and takes them out, ``aligned`` does so where they were cropped and mirrored."""


def _told(name: str, value: object, otherwise: str) -> Fact:
    return Fact(name, value is not None, otherwise if value is None else f"given: {value}")


def _pairs(images: Tensor, originals: Tensor) -> Comparison:
    return Comparison(originals.float(), images.float(), None, torch.zeros(len(originals)), None)


def _mean(values: Tensor) -> float:
    return float(values.double().mean())


def hit_members(answers: Tensor, members: Tensor) -> Tensor:
    """Which of the members (q x j) are among the answers (q x m).

    >>> import torch
    >>> hit_members(torch.tensor([[4, 2]]), torch.tensor([[2, 3]]))
    tensor([[ True, False]])
    """
    return (answers[:, :, None] == members[:, None]).any(dim=1)
