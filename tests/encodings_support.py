"""Small images that are correlated as real ones are, and what is published of them."""

from __future__ import annotations

import torch
from scipy.stats import rankdata
from torch import Tensor

from leakgauge.encodings import CrossDataset, Mixup, Scheme, SeededKeys, encrypt
from leakgauge.protocol.encoding import EncodingObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch


def fields(count: int, side: int = 8, channels: int = 1, *, seed: int = 0, decay: float = 1.5) -> Tensor:
    """Smooth random fields in [0, 1]: amplitudes fall with frequency, as those of photographs do."""
    generator = seeded(seed, "fields")
    rows, columns = torch.fft.fftfreq(side)[:, None], torch.fft.rfftfreq(side)[None]
    amplitude = (rows.square() + columns.square()).clamp(min=1 / side**2).pow(-decay / 2)
    noise = torch.randn(count, channels, side, side, generator=generator, dtype=torch.float64)
    shown = torch.fft.irfft2(torch.fft.rfft2(noise) * amplitude, s=(side, side))
    return (0.5 + 0.2 * shown / shown.std()).clamp(0, 1)


def published(
    scheme: Scheme, private: Tensor, public: Tensor, auxiliary: Tensor | None, *, seed: int = 0, copies: int = 1
) -> tuple[EncodingObservation, Tensor]:
    """What an attacker sees of the private images, and which public images are in each encoding."""
    batch = Batch(private, torch.arange(len(private)) % 5)
    keys = SeededKeys(seeded(seed, "keys"))
    encoded, secret = encrypt(scheme, batch, classes=5, public=public, copies=copies, keys=keys)
    own = scheme.private_per_encoding
    observation = EncodingObservation(encoded, scheme.k, own, scheme.signed, public=public, auxiliary=auxiliary)
    return observation, secret.mixing.indices[:, own:] - len(private)


def mixup(k: int = 3) -> Mixup:
    return Mixup(k, public=k - 1)


def instahide(k: int = 3) -> CrossDataset:
    return CrossDataset(k, private=1, least_private=0.0)


def found(indices: Tensor, truth: Tensor, most: int) -> float:
    """The share of the true images that are among the first ``most``."""
    return float((indices[:, :most, None] == truth[:, None]).any(dim=1).double().mean())


def area(positive: Tensor, negative: Tensor) -> float:
    """The chance that a positive score exceeds a negative one, ties counting half; NaN without either.

    >>> area(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.0]))
    0.875
    """
    if not len(positive) or not len(negative):
        return float("nan")
    ranks = torch.from_numpy(rankdata(torch.cat([positive, negative]).double().numpy()))
    below = float(ranks[: len(positive)].sum()) - len(positive) * (len(positive) + 1) / 2
    return below / (len(positive) * len(negative))
