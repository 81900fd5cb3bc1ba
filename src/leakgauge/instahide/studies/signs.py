"""How many signs a demasker gets right."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from leakgauge.attacks.encodings.demasking import Demasker
from leakgauge.attacks.encodings.synthetic import mixtures
from leakgauge.attacks.encodings.whitening import centred
from leakgauge.randomness import seeded


@dataclass(frozen=True)
class SignRow:
    """Shares of pixels with the right sign: all alike, weighted by magnitude, and up to a flip of the whole image.

    ``null`` gives each encoding the signs guessed for another: what images have in common, without looking.
    """

    k: int
    seed: int
    encodings: int
    accuracy: float
    weighted: float
    up_to_flip: float
    null: float
    steps: int


def sign_accuracy(images: Tensor, demasker: Demasker, k: int, *, encodings: int = 600, seed: int = 0) -> SignRow:
    """On mixtures of k images that the demasker was not trained on."""
    mixed = mixtures(images, k, encodings, generator=seeded(seed, "signs")).images
    signs = demasker.hard().encodings(mixed)
    pixels, guessed = centred(mixed).flatten(1), centred(signs).flatten(1) > 0
    right = ((pixels > 0) == guessed).double()
    magnitudes = pixels.abs().double()
    each = right.mean(dim=1)
    return SignRow(
        k,
        seed,
        encodings,
        accuracy=float(each.mean()),
        weighted=float((right * magnitudes).sum() / magnitudes.sum()),
        up_to_flip=float(each.maximum(1 - each).mean()),
        null=float(((pixels > 0) == guessed.roll(1, dims=0)).double().mean()),
        steps=int(demasker.facts.get("steps", 0)),
    )
