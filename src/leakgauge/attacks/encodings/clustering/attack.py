"""The attack that broke InstaHide: similar encodings, groups, assignment, images; with a stronger last half."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from leakgauge.attacks.encodings.algebra.lift import alternate, expected, residuals
from leakgauge.attacks.encodings.algebra.synchronisation import synchronise
from leakgauge.attacks.encodings.algebra.whitening import centred, uncentred
from leakgauge.attacks.encodings.base import EncodingAttack
from leakgauge.attacks.encodings.clustering.assignment import LabelSimplices, counts_from_labels, private_from_labels
from leakgauge.attacks.encodings.clustering.clusters import PairSimilarity, groups_by_class
from leakgauge.attacks.encodings.clustering.public_noise import likelier, pictures_amid, public_variances
from leakgauge.attacks.encodings.clustering.refinement import Explained, pictures_of, refine, repair
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.encoding import EncodingObservation
from leakgauge.types import Decoding, Outcome, Reconstruction

_NO_AUXILIARY = "none: pictures or their negatives, whichever look more like photographs; all may be negatives"
_FINAL_RIDGE, _FINAL_STEPS, _EXACT_STEPS = 1e-6, 20, 3


class _Task(NamedTuple):
    """First coefficients t x n, |E| of all pixels and of those chosen, and what labels allow."""

    observation: EncodingObservation
    start: Tensor
    sizes: Tensor
    chosen: Tensor
    simplices: LabelSimplices
    progress: Progress


@final
@dataclass(frozen=True)
class Clustering(EncodingAttack):
    """Restores the private images from encodings and their labels, after Carlini et al. [2021].

    Encodings that share an image are grouped class by class; then images and coefficients are found by turns. E^2 is
    linear in the products x_i x_j, so one ridge system serves every pixel, and the top eigenvector of its solution
    starts an alternation of signs and pixels. The pixel's one open sign comes from its neighbours. Public images, where
    there are any, are noise. ``pixels`` of each encoding are looked at while coefficients are sought, all at the end.
    Counts of classes and of images that are not told are read from the labels; ``facts`` says which were.
    """

    similarity: PairSimilarity = field(default_factory=PairSimilarity)
    rounds: int = 14
    pixels: int = 600

    def __post_init__(self) -> None:
        if self.rounds < 0 or self.pixels < 1:
            raise InvalidCase(
                f"Clustering needs rounds >= 0 and pixels >= 1, got {self.rounds} and {self.pixels}; correct them."
            )

    def __call__(
        self, observation: EncodingObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        classes = private_classes(observation)
        labels = observation.encoded.labels.to(_precision(observation))
        similarity = self.similarity(observation, generator=generator)
        start = groups_by_class(similarity, labels, classes, generator=generator)
        return self.from_assignment(observation, start, classes, generator=generator, progress=progress)

    def from_assignment(
        self,
        observation: EncodingObservation,
        start: Tensor,
        classes: Tensor,
        *,
        generator: Generator,
        progress: Progress = silent,
    ) -> Reconstruction:
        """The second half alone: from first coefficients, t x n, and the class of each image."""
        sizes = magnitudes(observation)
        simplices = LabelSimplices(classes, observation.encoded.labels.to(_precision(observation)))
        wanted = min(sizes.shape[1], max(self.pixels, 8 * len(classes)))
        chosen = sizes[:, torch.randperm(sizes.shape[1], generator=generator)[:wanted]].contiguous()
        solve = self._amid_public if observation.private_per_encoding < observation.k else self._inside
        pictures, coefficients, trace = solve(_Task(observation, start, sizes, chosen, simplices, progress))
        images = with_signs(observation, pictures)
        return Reconstruction(
            inputs=images,
            labels=classes,
            outcome=Outcome.SOLVED,
            loss_trace=torch.tensor(trace),
            facts={
                **knowledge(observation),
                "private images": len(classes),
                "rounds": len(trace),
                "residual": float(residuals(coefficients, sizes, pictures.to(sizes)).mean()),
            },
            decoding=decode(observation, images, coefficients),
        )

    def _inside(self, task: _Task) -> tuple[Tensor, Tensor, list[float]]:
        observation, start, sizes = task.observation, task.start, task.sizes
        found, trace = Explained(start, torch.full_like(start[:, 0], 1e-9)), list[float]()
        if self.rounds:
            found, trace = refine(
                start, task.chosen, task.simplices, observation.k, rounds=self.rounds, progress=task.progress
            )
        pictures = pictures_of(found, sizes, ridge=_FINAL_RIDGE, steps=_FINAL_STEPS)
        errors = residuals(found.coefficients, sizes, pictures).mean(dim=1)
        variances = found._replace(errors=errors).variances
        channels, height, width = observation.encoded.images.shape[1:]
        pictures = repair(found.coefficients, sizes, pictures, (channels, height, width), variances=variances)
        exact = alternate(
            found.coefficients.double(),
            sizes.double(),
            pictures.double(),
            variances=variances.double(),
            steps=_EXACT_STEPS,
        )
        return exact, found.coefficients, trace

    def _amid_public(self, task: _Task) -> tuple[Tensor, Tensor, list[float]]:
        observation, sizes, chosen, simplices = task.observation, task.sizes, task.chosen, task.simplices
        own = observation.private_per_encoding
        variances = public_variances(simplices.labels, sizes, observation.k, own)
        coefficients, trace = task.start, list[float]()
        # With more than two the candidates are too many to try; the groups stand.
        rounds = min(self.rounds, 4) if own <= 2 else 0
        for number in range(rounds):
            pictures = pictures_amid(coefficients, chosen, variances)
            before, coefficients = coefficients, likelier(pictures, chosen, variances, simplices)
            trace.append(float(residuals(coefficients, chosen, pictures).mean()))
            task.progress(Tick(number + 1, (number + 1) / rounds, trace[-1]))
            if torch.equal(before, coefficients):
                break
        return pictures_amid(coefficients, sizes, variances).double(), coefficients, trace


def magnitudes(observation: EncodingObservation) -> Tensor:
    """|E| of pixels in [-1, 1], t x d: what the mask leaves."""
    return centred(observation.encoded.images.to(_precision(observation))).abs().flatten(1)


def with_signs(observation: EncodingObservation, pictures: Tensor) -> Tensor:
    """Images n c h w in [0, 1] of pictures n x d whose signs are open, one for each pixel of all of them."""
    mean = None if observation.auxiliary is None else centred(observation.auxiliary).mean(dim=0)
    found = synchronise(pictures.unflatten(1, observation.encoded.images.shape[1:]), mean)
    return uncentred(found).clamp(0, 1).to(observation.encoded.images)


def decode(observation: EncodingObservation, images: Tensor, coefficients: Tensor) -> Decoding:
    """What is said of each image: the encoding with most of it, whose signs are those of what it is thought to mix."""
    most = coefficients.argmax(dim=0)
    encodings = demasked = observation.encoded.images[most]
    if observation.signed:
        mixtures = coefficients[most].to(images) @ centred(images).flatten(1)
        sizes = centred(encodings).abs().flatten(1)
        demasked = uncentred(expected(mixtures, sizes)).view_as(encodings)
    return Decoding(coefficients, encodings, demasked)


def private_classes(observation: EncodingObservation) -> Tensor:
    """The class of every private image, in order, as told or as labels give it away."""
    labels = observation.encoded.labels
    counts = observation.class_counts
    if counts is None:
        total = observation.num_private or private_from_labels(labels, observation.private_per_encoding)
        counts = counts_from_labels(labels, total)
    if len(counts) != labels.shape[1]:
        raise InvalidCase(
            f"Labels have {labels.shape[1]} classes but {len(counts)} counts were given; pass one count per class."
        )
    return torch.repeat_interleave(torch.arange(len(counts)), counts.long())


def knowledge(observation: EncodingObservation) -> dict[str, str]:
    """What the attacker was given, for the ledger."""
    told = {True: "given", False: "read from the labels"}
    counted = observation.class_counts is not None
    return {
        "labels": "given",
        "class counts": told[counted],
        "number of private images": told[counted or observation.num_private is not None],
        "alignment": "assumed: private images enter every encoding uncropped and unmirrored",
        "auxiliary images": _NO_AUXILIARY
        if observation.auxiliary is None
        else f"{len(observation.auxiliary)}, for the sign",
    }


def _precision(observation: EncodingObservation) -> torch.dtype:
    return torch.promote_types(observation.encoded.images.dtype, torch.float32)
