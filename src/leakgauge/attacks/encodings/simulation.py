"""What an attacker learns from encodings of its own images: the scheme is public, so it can be simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from leakgauge.attacks.budget import Budget
from leakgauge.encodings.keys import SeededKeys
from leakgauge.encodings.schemes import Mixup, encrypt
from leakgauge.errors import InvalidCase
from leakgauge.progress import Progress, Tick
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


def train_network(
    network: nn.Module, loss_of: Callable[[], Tensor], budget: Budget, learning_rate: float, progress: Progress
) -> int:
    """Adam on a loss that is drawn anew in every step, its rate falling with the budget; the steps it took.

    The network ends in eval mode, without gradients.
    """
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    begun, steps, spent = budget.now(), 0, 0.0
    while spent < 1:
        loss = loss_of()
        optimiser.param_groups[0]["lr"] = learning_rate * (1 - spent)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        steps += 1
        spent = budget.spent(steps, budget.now() - begun)
        progress(Tick(steps, spent, float(loss.detach())))
    network.requires_grad_(False)
    network.eval()
    return steps
