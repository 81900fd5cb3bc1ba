"""How many private images there are, and how many of each class: read from the labels of encodings."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from leakgauge.attacks.encodings.clustering.assignment import PRESENT
from leakgauge.attacks.labels.counts import whole_counts
from leakgauge.errors import MissingKnowledge


def counts_from_labels(labels: Tensor, num_private: int) -> Tensor:
    """How many private images each class has: n times its share of all label weight, in whole numbers.

    Every image is used equally often, so labels give the counts away up to the fluctuation of coefficients.

    >>> counts_from_labels(torch.tensor([[0.5, 0.5, 0.0], [0.7, 0.3, 0.0], [0.9, 0.1, 0.0]]), 3)
    tensor([2, 1, 0])
    """
    return whole_counts(_shares(labels) * num_private, num_private)


def private_from_labels(labels: Tensor, private_per_encoding: int) -> int:
    """The most likely number n of private images, of those that make whole epochs of the encodings.

    n times the share of a class is a whole number up to the fluctuation of coefficients, whose variance is read off the
    encodings with as many classes as images; a wrong n leaves any remainder as likely as any other.
    """
    total, shares = len(labels), _shares(labels)
    single = (labels > PRESENT).sum(dim=1) == private_per_encoding
    seen = labels[single][labels[single] > PRESENT].double()
    if len(seen) < 2:
        raise MissingKnowledge(
            "No encoding has as many classes as private images, so their number cannot be read from labels; pass "
            "`num_private`."
        )
    relative = max(float(seen.std() / seen.mean()), 1e-3)
    candidates = [n for n in range(max(2, private_per_encoding), total + 1) if total % n == 0]
    return max(candidates, key=lambda n: _evidence(shares * n, relative, total // n * private_per_encoding))


def _shares(labels: Tensor) -> Tensor:
    weights = labels.double().sum(dim=0)
    return weights / weights.sum().clamp_min(PRESENT)


def _evidence(counts: Tensor, relative: float, uses: int) -> float:
    """Log likelihood of the remainders against that of uniform ones."""
    used = counts[counts > 0.1]
    deviation = relative * used.clamp_min(1).sqrt() / math.sqrt(uses)
    remainder = used - used.round()
    normal = torch.distributions.Normal(torch.zeros_like(deviation), deviation)
    # Wrapped to one period: a wide fluctuation says nothing.
    density = sum(normal.log_prob(remainder + shift).exp() for shift in range(-3, 4))
    return float(torch.as_tensor(density).clamp_min(1e-30).log().sum())
