"""Which images are mixed with which, and how much of each goes into a mixture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from leakgauge.encodings.keys import KeySource
from leakgauge.errors import InvalidCase

Draws = Callable[[int, int], Tensor]
"""A source of independent uniform numbers in [0, 1), float64, rows x columns."""

Law = Callable[[Draws, int, int], Tensor]
"""Coefficients, encodings x images, from a source of uniform numbers."""

_ROUNDS = 1000
"""Tries after which a bound on the coefficients counts as out of reach."""


def uniform(draws: Draws, rows: int, k: int) -> Tensor:
    """lam = u / |u|_1, u ~ U[0, 1]^k [Huang et al., 2020, Algorithms 1 and 2]."""
    return _normalise(draws(rows, k))


def half_normal(draws: Draws, rows: int, k: int) -> Tensor:
    """lam = |z| / |z|_1, z ~ N(0, I_k): by the inverse of erf, whose scale the norm cancels."""
    return _normalise(torch.erfinv(draws(rows, k)))


def anchored(draws: Draws, rows: int, k: int) -> Tensor:
    """lam ~ Dirichlet(3, 1, ..., 1), more of the own image than of any other [Huang et al., 2021, intra]."""
    # Normalised Gamma variables; Gamma(3) is the sum of three exponential ones.
    waits = -draws(rows, k + 2).log()
    return _normalise(torch.cat([waits[:, :3].sum(dim=1, keepdim=True), waits[:, 3:]], dim=1))


LAWS: Mapping[str, Law] = MappingProxyType({"uniform": uniform, "half_normal": half_normal, "anchored": anchored})


def law_named(name: str) -> Law:
    if name not in LAWS:
        raise InvalidCase(f"There is no law of coefficients {name!r}; choose from {', '.join(LAWS)}.")
    return LAWS[name]


def check_bound(who: str, k: int, largest: float) -> None:
    """Refuse a number of images or a bound that no coefficients could meet."""
    if k < 1:
        raise InvalidCase(f"{who}(k=...) must be at least 1, got {k}; it is how many images are mixed.")
    if not (1 / k < largest <= 1 or (k == 1 and 0 < largest <= 1)):
        raise InvalidCase(
            f"{who}(largest=...) must lie above 1/k = {1 / k:.3g} and be at most 1, got {largest};"
            " the coefficients sum to 1."
        )


def draw_bounded(
    law: Law, draws: Draws, rows: int, k: int, *, largest: float, leading: int = 0, least_leading: float = 0.0
) -> Tensor:
    """Coefficients of the law, each row drawn until max <= ``largest`` and its first ``leading`` sum to enough."""
    if k == 1:
        return torch.ones(rows, 1, dtype=torch.float64)
    coefficients = torch.full((rows, k), math.inf, dtype=torch.float64)
    for _ in range(_ROUNDS):
        refused = (coefficients.amax(dim=1) > largest) | (coefficients[:, :leading].sum(dim=1) < least_leading)
        if not bool(refused.any()):
            return coefficients
        coefficients[refused] = law(draws, rows, k)[refused]
    raise InvalidCase(
        f"Hardly any {k} coefficients are at most {largest:g} each"
        + (f" with {leading} of them summing to {least_leading:g}" if least_leading else "")
        + "; raise `largest`"
        + (" or lower `least_private`." if least_leading else ".")
    )


def _normalise(weights: Tensor) -> Tensor:
    return weights / weights.sum(dim=1, keepdim=True)


_SHUFFLES = 100
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
    for _ in range(_SHUFFLES):
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
