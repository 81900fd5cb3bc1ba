"""Encodings of the attacker's own images: the scheme is public, so its statistics can be simulated."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from leakgauge.encodings.keys import SeededKeys
from leakgauge.encodings.schemes import Mixup, encrypt
from leakgauge.errors import InvalidCase
from leakgauge.types import Batch

LARGEST = 0.65
"""The bound on a coefficient in every published deployment."""


class Mixtures(NamedTuple):
    """Mixtures t c h w in [0, 1] before the mask, of images ``indices`` t k of the pool in shares ``coefficients``."""

    images: Tensor
    indices: Tensor
    coefficients: Tensor


def mixtures(pool: Tensor, k: int, count: int, *, generator: Generator) -> Mixtures:
    """``count`` mixtures of k images of the pool n c h w, which is all an attacker needs who looks past the mask."""
    if len(pool) <= k:
        raise InvalidCase(f"Mixtures of {k} images need more than {len(pool)}; pass more auxiliary images.")
    order = torch.randint(len(pool), (count,), generator=generator)
    own = Batch(pool[order], torch.zeros(count, dtype=torch.long))
    scheme = Mixup(k, LARGEST if k > 1 else 1.0, public=k - 1)
    encoded, secret = encrypt(scheme, own, classes=1, public=pool, keys=SeededKeys(generator))
    indices = torch.cat([order[:, None], secret.mixing.indices[:, 1:] - count], dim=1)
    return Mixtures(encoded.images, indices, secret.mixing.coefficients.to(pool))
