"""Evidence, one private example at a time, that what came back is of *it*: a p-value against a crowd of strangers.

An example is as near as the nearest of the candidates that speak for it, whatever their number; a stranger as near as
the nearest of all. If the candidates do not depend on the example, it is one of m + 1 whose order says nothing: the
rank is a p-value. Where it is nearer than all strangers, the margin counts too. Near zero the distances of strangers
follow a power law, P(d < t) ~ t^a, whose exponent Hill [1975] estimates from the least of them; it is taken at its
lower confidence limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from scipy import fft, special
from torch import Tensor

from leakgauge.metrics.displacement import averaged, unlike_displaced
from leakgauge.space import Continuous, ImageSpace, InputSpace, TableSpace, TokenSpace

_RESOLUTION = 1e-9
"""Distances below it are those of equal inputs: 90 dB."""
_LEAST = 1e-30
"""Of a p-value: an exact match is nearly certain, not certain."""
_TAIL, _FEWEST = 0.1, 8
"""The share of the strangers that the exponent is estimated from, and how many of them at the least."""
_CONFIDENCE = 0.05
_NEAR = 0.02
"""The share of all that a candidate is near to."""
_COPY = 0.15
"""Of the distance of strangers: what is no farther is as good as a copy."""
_COMPARED = 500
"""Strangers that say how far strangers are."""
_LARGEST = 1e4
"""Of an entry of a candidate: what has diverged must not overflow."""
_CHUNK = 1 << 22
"""Numbers that are brought to float64 at once."""
_NARROWEST, _FACTOR, _WIDEST = 0.8, 1.35, 0.4
"""Of a blur, as the standard deviation of a Gaussian: in pixels, from one to the next, and in heights."""
_SIDE = 16
"""Pixels beyond which images are averaged before they are displaced."""
_DAMPED = 0.01
"""Waves that a blur leaves less of are left out."""


@dataclass(frozen=True)
class Evidence:
    """For each private example its p-value, and which candidate is nearest to it, -1 = none."""

    p: tuple[float, ...]
    nearest: tuple[int, ...]


def weigh_evidence(
    candidates: Tensor, originals: Tensor, strangers: Tensor, space: InputSpace, *, paired: bool = False
) -> Evidence:
    """How unlikely it is that candidates which know nothing of an original come as near to it as these.

    ``strangers`` are m for all originals, or n x m, m for each; without any there is no evidence. ``paired`` candidates
    speak for the original of their row alone. Images are compared by their squared error and by their correlation,
    which sees through lost contrast, as they are and in the mirror, sharp and blurred, and by their correlation at any
    displacement; so are strangers.

    >>> images = torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    >>> found = weigh_evidence(images[:1], images[:2], images[2:], ImageSpace(1, 4, 4))
    >>> found.p[0] < 1e-6, found.p[1], found.nearest
    (True, 1.0, (0, -1))
    """
    usable = torch.isfinite(candidates).flatten(1).all(dim=1)
    count, per_victim = len(originals), strangers.ndim > originals.ndim
    if strangers.shape[int(per_victim)] == 0:
        return Evidence((), ())
    places = usable.nonzero().flatten()
    if not paired and not per_victim:
        p, nearest = _weigh(candidates[places], originals, strangers, space)
        return Evidence(tuple(p), tuple(_place(places, at) for at in nearest))
    found = Evidence((), ())
    for row in range(count):
        own = places[places == row] if paired else places
        crowd = strangers[row] if per_victim else strangers
        p, nearest = _weigh(candidates[own], originals[row][None], crowd, space)
        found = Evidence((*found.p, *p), (*found.nearest, _place(own, nearest[0])))
    return found


def _place(places: Tensor, at: int) -> int:
    return int(places[at]) if at >= 0 else -1


def _weigh(
    candidates: Tensor, originals: Tensor, strangers: Tensor, space: InputSpace
) -> tuple[list[float], list[int]]:
    """The p-value of each original, and its nearest candidate by the statistic that says most."""
    least, nearest = [1.0] * len(originals), [-1] * len(originals)
    if len(candidates) == 0:
        return least, nearest
    statistics = _distances((originals, strangers), candidates, space)
    loudest: dict[int, _Claim] = {}
    for distances in statistics:
        claims = [
            replace(one, p=len(statistics) * one.p) for one in _claims(distances, len(originals), strangers, space)
        ]
        for one in claims:
            # What a candidate says of one original outweighs what it says, less surely and another way, of another.
            louder = loudest.get(one.candidate)
            if louder is not None and louder.row != one.row and louder.p <= one.p:
                continue
            if one.p < least[one.row] or nearest[one.row] < 0:
                least[one.row], nearest[one.row] = min(1.0, max(_LEAST, one.p)), one.candidate
        for one in claims:
            if one.candidate not in loudest or one.p < loudest[one.candidate].p:
                loudest[one.candidate] = one
    return least, nearest


@dataclass(frozen=True)
class _Claim:
    """That an original came back as a candidate, and the p-value of it."""

    row: int
    candidate: int
    p: float


def _claims(distances: Tensor, count: int, strangers: Tensor, space: InputSpace) -> Iterator[_Claim]:
    """By one statistic, for each of the first ``count`` inputs that a candidate speaks for."""
    # In units of what is near to a candidate: a flat one, which is near to many, speaks no louder than a sharp one.
    units = distances.quantile(_NEAR, dim=0).clamp_min(_RESOLUTION)
    relative = torch.where(distances < _RESOLUTION, 0.0, distances / units)
    own, crowd = relative[:count], relative[count:].amin(dim=1).sort().values
    # A candidate speaks for the original that it is nearest to, or for several that are alike.
    spoken = own <= own.amin(dim=0) * (1 + _RESOLUTION)
    nearness, at = torch.where(spoken, own, torch.inf).min(dim=1)
    exponent = tail_exponent(crowd)
    if isinstance(space, TableSpace):
        exponent = min(exponent, _continuous(strangers, space) / 2)
    if isinstance(space, TokenSpace):
        exponent = 0.0  # tokens match by chance alone, so that only the rank says something
    for row, (distance, rival) in enumerate(zip(nearness.tolist(), _rivals(own, spoken, at), strict=True)):
        if distance < torch.inf:
            p = max(
                rank_or_margin(distance, crowd, exponent),
                # Among the originals themselves, which are of one kind whatever the strangers are.
                (distance / rival) ** exponent / count if 0 < rival < torch.inf and exponent > 0 else 0.0,
            )
            yield _Claim(row, int(at[row]), p)


def _rivals(own: Tensor, spoken: Tensor, at: Tensor) -> list[float]:
    """How near the candidate of each original is to the next original that it does not speak for; inf without one."""
    others = torch.where(spoken, torch.inf, own).amin(dim=0)
    return others[at].tolist()


def least_by_rank(space: InputSpace, strangers: int) -> float:
    """The p-value of an original that is nearer than all strangers, before its margin counts."""
    return count_statistics(space) / (strangers + 1)


def count_statistics(space: InputSpace) -> int:
    """How many statistics an original is compared by, for each of which a p-value is corrected."""
    return 3 if isinstance(space, ImageSpace) else 1


def near_copies(candidates: Tensor, originals: Tensor, strangers: Tensor, space: InputSpace) -> tuple[bool, ...]:
    """Which originals a candidate, or its mirror image, is as good as a copy of: a seventh as far as strangers are.

    That needs no crowd of the originals' own kind, as a p-value does: a digit is nearer to any other digit than to
    every photograph.
    """
    usable = candidates[torch.isfinite(candidates).flatten(1).all(dim=1)].double()
    if len(usable) == 0:
        return (False,) * len(originals)
    views = torch.cat((usable, usable.flip(-1))) if isinstance(space, ImageSpace) else usable
    own = space.distance(originals.double(), views).amin(dim=1)
    apart = space.distance(originals.double(), strangers[:_COMPARED].double()).median(dim=1).values
    return tuple((own <= _COPY * apart).tolist())


def rank_or_margin(distance: float, crowd: Tensor, exponent: float) -> float:
    """The p-value of a distance among the sorted ones of a crowd; what ties with a stranger is not nearer."""
    nearer = int(torch.searchsorted(crowd, distance * (1 + _RESOLUTION), right=True))
    if nearer:
        return (1 + nearer) / (len(crowd) + 1)
    margin = (distance / float(crowd[0])) ** exponent if exponent > 0 else 1.0
    return margin / (len(crowd) + 1)


def tail_exponent(crowd: Tensor) -> float:
    """How fast the probability of small distances falls, P(d < t) ~ t^a: Hill's estimate at its lower 95 % limit.

    Equal distances count once: copies among the strangers make no tail steeper. 0 where fewer than three differ.

    >>> tail_exponent(torch.linspace(0, 1, 10001, dtype=torch.float64)[1:].sqrt()) > 1.8  # P(d < t) = t^2
    True
    """
    distances = crowd.unique()
    lowest = distances[distances > 0][: max(_FEWEST, round(_TAIL * len(crowd)))]
    if len(lowest) < 3:
        return 0.0
    spacings = float((lowest[-1] / lowest[:-1]).log().sum())
    return float(special.gammaincinv(len(lowest) - 1, _CONFIDENCE)) / spacings


def _distances(inputs: tuple[Tensor, ...], candidates: Tensor, space: InputSpace) -> list[Tensor]:
    """Of all inputs (rows) from each candidate (columns), by each statistic, in float64."""
    if isinstance(space, TokenSpace):
        return [torch.cat([space.distance(some, candidates) for some in inputs])]
    given = candidates.double().clamp(-_LARGEST, _LARGEST)
    if not isinstance(space, ImageSpace):
        return [torch.cat([space.distance(some, given) for some in inputs])]
    blurs = _blurs(given)
    rows = max(1, _CHUNK // space.parts)
    parts = [_compare(chunk.double(), given, blurs) for some in inputs for chunk in some.split(rows)]
    return [torch.cat(part) for part in zip(*parts, strict=True)]


@dataclass(frozen=True)
class _Blur:
    """One width of a Gaussian: what it leaves of each wave, h w, and the waves of the candidates and of their mirror
    images times that, 2k of them."""

    remains: Tensor
    candidates: Tensor

    def products(self, waves: Tensor) -> Tensor:
        """Of each image, blurred, with each candidate or its mirror image, whichever is larger."""
        height, width = self.remains.shape
        both = waves[..., :height, :width].flatten(1) @ self.candidates.mT
        return torch.maximum(*both.chunk(2, dim=1))

    def squares(self, waves: Tensor) -> Tensor:
        height, width = self.remains.shape
        return (waves[..., :height, :width] * self.remains).flatten(1).square().sum(dim=1)


def _waves(images: Tensor) -> Tensor:
    """Their cosine transform, which keeps inner products; a blur that reflects at the border scales its entries."""
    return torch.from_numpy(fft.dctn(images.numpy(), axes=(-2, -1), norm="ortho"))


def _blurs(candidates: Tensor) -> list[_Blur]:
    waves, (height, width) = _waves(candidates), candidates.shape[-2:]
    mirrored = waves * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(width)[:width]
    both = torch.cat([waves, mirrored])
    blurs, deviation = [_Blur(torch.ones(height, width, dtype=torch.float64), both.flatten(1))], _NARROWEST
    while deviation <= _WIDEST * min(height, width):
        rows, columns = (
            torch.exp(-0.5 * (math.pi * deviation / side * torch.arange(side, dtype=torch.float64)) ** 2)
            for side in (height, width)
        )
        rows, columns = rows[rows > _DAMPED], columns[columns > _DAMPED]
        remains = rows[:, None] * columns
        blurs.append(_Blur(remains, (both[..., : len(rows), : len(columns)] * remains).flatten(1)))
        deviation *= _FACTOR
    return blurs


def _compare(images: Tensor, candidates: Tensor, blurs: list[_Blur]) -> tuple[Tensor, Tensor, Tensor]:
    """The squared error and 1 - correlation, each with the blur that makes it least, and 1 - correlation with the
    displacement that does."""
    # In float64 what cancels in |a|^2 + |b|^2 - 2ab lies far below the resolution.
    waves, size = _waves(images), images[0].numel()
    given = candidates.flatten(1)
    lengths, centre, contrast = given.square().mean(dim=1), given.mean(dim=1), _root(given.var(dim=1, correction=0))
    means = images.flatten(1).mean(dim=1)
    errors, unlike = [], []
    for blur in blurs:
        squares, products = blur.squares(waves) / size, blur.products(waves) / size
        errors.append(squares[:, None] + lengths - 2 * products)
        spread = _root(squares - means.square())[:, None] * contrast
        # An image without contrast correlates with none.
        unlike.append(torch.where(spread > 0, 1 - (products - means[:, None] * centre) / spread, 1.0))
    return (
        torch.stack(errors).amin(dim=0).clamp_min(0),
        torch.stack(unlike).amin(dim=0).clamp(0, 2),
        unlike_displaced(averaged(images, _SIDE), averaged(candidates, _SIDE)).clamp(0, 2),
    )


def _root(variance: Tensor) -> Tensor:
    """The standard deviation, 0 where there is next to none."""
    return torch.where(variance > 1e-8, variance.clamp_min(0).sqrt(), 0.0)


def _continuous(rows: Tensor, space: TableSpace) -> int:
    """How many columns hold numbers that hardly ever repeat: the others match by chance alone."""
    columns = zip(space.columns, space.blocks(rows), strict=True)
    return sum(isinstance(one, Continuous) and 2 * len(block.unique()) > len(block) for one, block in columns)
