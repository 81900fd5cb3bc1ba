"""Which images are mixed with which."""

from __future__ import annotations

import torch
from torch import Tensor

from leakgauge.encodings.keys import KeySource

_ROUNDS = 100
"""Shuffles after which an arrangement without repetitions is built instead of found; sets hardly larger than k."""


def permute(num_images: int, columns: int, keys: KeySource) -> Tensor:
    """Row i is i, pi_2(i), ..., pi_k(i) for random permutations pi_j [Huang et al., 2020, Algorithms 1 and 2].

    No row names an image twice, for then a bound on one coefficient would not bound the image's share; so every image
    is used ``columns`` times in all, once as the first.
    """
    found = torch.arange(num_images)[:, None]
    for _ in range(columns - 1):
        column = _apart_from(found, keys)
        if column is None:
            return _rotate(num_images, columns, keys)
        found = torch.cat([found, column[:, None]], dim=1)
    return found


def distinct(rows: int, columns: int, population: int, keys: KeySource) -> Tensor:
    """In each row ``columns`` different numbers below ``population``, each set as likely as any other."""
    if 2 * columns > population:
        return keys.uniform(rows, population).argsort(dim=1)[:, :columns]
    found = _below(population, keys, rows, columns)
    while True:
        repeats = _repeats(found)
        if not bool(repeats.any()):
            return found
        found[repeats] = _below(population, keys, int(repeats.sum()), columns)


def _apart_from(found: Tensor, keys: KeySource) -> Tensor | None:
    """A random permutation that repeats nothing in its row: clashes are shuffled among themselves and some others."""
    num_images = len(found)
    column = keys.uniform(num_images).argsort()
    for _ in range(_ROUNDS):
        clashes = (found == column[:, None]).any(dim=1).nonzero().flatten()
        if len(clashes) == 0:
            return column
        others = _below(num_images, keys, len(clashes) + 1)
        moved = torch.cat([clashes, others]).unique()
        column[moved] = column[moved[keys.uniform(len(moved)).argsort()]]
    return None


def _rotate(num_images: int, columns: int, keys: KeySource) -> Tensor:
    """Rotations of one random cycle through the images, by different steps."""
    cycle = keys.uniform(num_images).argsort()
    steps = 1 + keys.uniform(num_images - 1).argsort()[: columns - 1]
    steps = torch.cat([steps.new_zeros(1), steps])
    return cycle[(cycle.argsort()[:, None] + steps) % num_images]


def _repeats(rows: Tensor) -> Tensor:
    ordered = rows.sort(dim=1).values
    return (ordered[:, 1:] == ordered[:, :-1]).any(dim=1)


def _below(bound: int, keys: KeySource, *shape: int) -> Tensor:
    return (keys.uniform(*shape) * bound).long().clamp_(max=bound - 1)
