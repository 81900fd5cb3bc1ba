"""The encryption schemes, as values, and the one function that applies them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, one_hot

from leakgauge.encodings.draws import check_bound, distinct, draw_bounded, law_named, permute
from leakgauge.encodings.keys import KeySource
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.encoding import CENTRE, EncodedSet, Mixing, stack_mixings
from leakgauge.types import Batch

_BLOCK = 1 << 18
"""Pixels worked on at a time: few enough to stay in the cache between mixing and masking."""


@dataclass(frozen=True)
class Scheme(ABC):
    """k images an encoding, some of them public; coefficients of a named law, each at most ``largest`` (c1)."""

    signed: ClassVar[bool] = True

    k: int = 4
    largest: float = 0.65
    law: str = field(default="uniform", kw_only=True)

    def __post_init__(self) -> None:
        check_bound(type(self).__name__, self.k, self.largest)
        law_named(self.law)

    @property
    @abstractmethod
    def private_per_encoding(self) -> int: ...

    @property
    def least(self) -> float:
        """What the private coefficients of an encoding sum to at least."""
        return 0.0

    @property
    def public_per_encoding(self) -> int:
        return self.k - self.private_per_encoding

    def draw(self, num_private: int, num_public: int, *, keys: KeySource) -> Mixing:
        """One epoch's mixing, each private image once the first of an encoding; public images count on after them."""
        own, added = self.private_per_encoding, self.public_per_encoding
        self._check(num_private, num_public)
        indices = permute(num_private, own, keys)
        if added:
            chosen = distinct(num_private, added, num_public, keys)
            indices = torch.cat([indices, num_private + chosen], dim=1)
        coefficients = draw_bounded(
            law_named(self.law),
            keys.uniform,
            num_private,
            self.k,
            largest=self.largest,
            leading=own,
            least_leading=self.least,
        )
        return Mixing(coefficients, indices, self.signed)

    def _check(self, num_private: int, num_public: int) -> None:
        own, added = self.private_per_encoding, self.public_per_encoding
        if num_private < own:
            raise InvalidCase(
                f"{self} mixes {own} private images an encoding, but there are {num_private}; lower k or encrypt more "
                "images together."
            )
        if num_public < added:
            raise InvalidCase(
                f"{self} mixes {added} public images an encoding, but there are {num_public}; pass a larger public set."
            )


@final
@dataclass(frozen=True)
class Mixup(Scheme):
    """x~_i = sum_j lam_ij x_pi_j(i), without a mask [Zhang et al., 2018; Huang et al., 2020, Algorithm 1 and 2.2].

    ``public`` of the k images are public ones; Algorithm 1 has none, and bounds no coefficient (``largest=1``).
    """

    signed: ClassVar[bool] = False

    public: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.public < self.k:
            raise InvalidCase(f"Mixup(public=...) must lie between 0 and k - 1 = {self.k - 1}, got {self.public}.")

    @property
    def private_per_encoding(self) -> int:
        return self.k - self.public


@final
@dataclass(frozen=True)
class InsideDataset(Scheme):
    """x~_i = sigma_i o sum_j lam_ij x_pi_j(i), sigma_i a fresh mask of fair signs [Huang et al., 2020, Algorithm 2].

    Pixels lie in [0, 1] and their sign is taken around the centre; at k = 1 only the mask is left.
    """

    @property
    def private_per_encoding(self) -> int:
        return self.k


@final
@dataclass(frozen=True)
class CrossDataset(Scheme):
    """InstaHide with ``private`` images and k - private unlabelled public ones [Huang et al., 2020, section 3.2].

    The private coefficients sum to at least ``least_private`` (c2), and only they are in the label.
    """

    private: int = 2
    least_private: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.private < self.k:
            raise InvalidCase(
                f"CrossDataset(private=...) must lie between 1 and k - 1 = {self.k - 1}, got {self.private}; without "
                "public images, that is InsideDataset."
            )
        if not 0 <= self.least_private <= min(1.0, self.private * self.largest):
            raise InvalidCase(
                f"CrossDataset(least_private=...) must lie between 0 and what {self.private} coefficients of at most "
                f"{self.largest} reach, got {self.least_private}."
            )

    @property
    def private_per_encoding(self) -> int:
        return self.private

    @property
    def least(self) -> float:
        return self.least_private


class Secret(NamedTuple):
    """The one-time key. Indices count the private images first, then the public; ``flipped`` is t c h w."""

    mixing: Mixing
    flipped: Tensor


MOST_COPIES = 10_000
"""Encryptions of one image; the published challenge has 50."""


def encrypt(
    scheme: Scheme,
    private: Batch,
    *,
    classes: int,
    public: Tensor | None = None,
    copies: int = 1,
    keys: KeySource,
    progress: Progress = silent,
) -> tuple[EncodedSet, Secret]:
    """Encrypt the images ``copies`` times, each time with a new key; copy c of image i is encoding c n + i."""
    if copies < 1:
        raise InvalidCase(f"encrypt(copies=...) must be at least 1, got {copies}; it is encryptions per image.")
    if copies > MOST_COPIES:
        raise InvalidCase(f"An image is encrypted at most {MOST_COPIES} times, got {copies} copies; lower them.")
    check_images(private.inputs, public)
    num_public = 0 if public is None else len(public)
    mixing = stack_mixings([scheme.draw(len(private), num_public, keys=keys) for _ in range(copies)])
    return apply(scheme, mixing, private, classes=classes, public=public, keys=keys, progress=progress)


def shuffle(encoded: EncodedSet, secret: Secret, *, keys: KeySource) -> tuple[EncodedSet, Secret]:
    """The encodings in random order, since the order of `encrypt` says which image comes first in each."""
    order = keys.uniform(len(encoded)).argsort()
    device = encoded.images.device
    images, labels, flipped = (x[order.to(device)] for x in (encoded.images, encoded.labels, secret.flipped))
    return EncodedSet(images, labels), Secret(secret.mixing.rows(order), flipped)


def apply(
    scheme: Scheme,
    mixing: Mixing,
    private: Batch,
    *,
    classes: int,
    public: Tensor | None = None,
    keys: KeySource,
    progress: Progress = silent,
) -> tuple[EncodedSet, Secret]:
    """Mix as drawn, then mask; the images were checked before."""
    own, count = scheme.private_per_encoding, len(private)
    drawn = Mixing(mixing.coefficients.to(private.inputs), mixing.indices.to(private.inputs.device))
    sources = [(private.inputs, drawn.columns(slice(own)))]
    if public is not None and scheme.public_per_encoding:
        added = drawn.columns(slice(own, None))
        sources.append((public.to(private.inputs), added._replace(indices=added.indices - count)))
    images = private.inputs.new_empty(len(drawn.indices), *private.inputs.shape[1:])
    flipped = keys.flips(*images.shape) if scheme.signed else torch.zeros(images.shape, dtype=torch.bool)
    flipped = flipped.to(images.device)
    step = max(1, _BLOCK // private.inputs[0].numel())
    for start in range(0, len(images), step):
        rows = slice(start, start + step)
        mixture = reduce(Tensor.add_, (mix_rows(values, by.rows(rows)) for values, by in sources))
        # |1 - x| is the flipped pixel and |0 - x| the other, as pixels lie in [0, 1].
        torch.sub(flipped[rows].to(mixture), mixture.clamp_(0, 2 * CENTRE), out=images[rows]).abs_()
        progress(Tick(min(start + step, len(images)), min(1.0, (start + step) / len(images))))
    labels = mix_rows(class_weights(private.labels, classes).to(images), sources[0][1])
    return EncodedSet(images, labels), Secret(mixing, flipped)


def check_images(private: Tensor, public: Tensor | None) -> None:
    """Refuse images that cannot be mixed, or whose signs would be taken around the wrong centre."""
    if public is not None and public.shape[1:] != private.shape[1:]:
        raise InvalidCase(
            f"Public images are {tuple(public.shape[1:])} and private ones {tuple(private.shape[1:])}; crop or resize "
            "the public ones."
        )
    for images in (private, *(() if public is None else (public,))):
        darkest, brightest = map(float, images.aminmax()) if images.numel() else (0.0, 0.0)
        if not (darkest >= 0 and brightest <= 2 * CENTRE):
            raise InvalidCase(
                f"Images to encrypt hold pixels from {darkest:.3g} to {brightest:.3g}, but signs are taken around the "
                "centre of [0, 1]; pass pixels in [0, 1] and let the model normalise."
            )


def class_weights(labels: Tensor, classes: int) -> Tensor:
    """Classes n as rows of weights n classes; weights stay as they are."""
    if labels.ndim == 2:
        return labels
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise InvalidCase(f"A label is none of the {classes} classes, 0 to {classes - 1}; raise `classes`.")
    return one_hot(labels.long(), classes)


def mix_rows(values: Tensor, mixing: Mixing) -> Tensor:
    """sum_j coefficients[t, j] values[indices[t, j]], without a matrix of encodings x images or a copy per j."""
    weights = mixing.coefficients.to(values)
    flat = embedding_bag(mixing.indices, values.flatten(1), per_sample_weights=weights, mode="sum")
    return flat.reshape(len(flat), *values.shape[1:])
