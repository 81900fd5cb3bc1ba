"""Evidence, one private example at a time, that what came back is of *it*: a p-value against a crowd of strangers.

An example is as near as the nearest of all candidates, whatever their number; so is each stranger. If the candidates
do not depend on the example, it is one of m + 1 whose order says nothing: the rank is a p-value. Where it is nearer
than all strangers, the margin counts too. Near zero the distances of strangers follow a power law, P(d < t) ~ t^a,
whose exponent Hill [1975] estimates from the least of them; it is taken at its lower confidence limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

from leakgauge.space import Continuous, ImageSpace, InputSpace, TableSpace

_RESOLUTION = 1e-9
"""Distances below it are those of equal inputs: 90 dB."""
_LEAST = 1e-30
"""Of a p-value: an exact match is nearly certain, not certain."""
_TAIL, _FEWEST = 0.1, 8
"""The share of the strangers that the exponent is estimated from, and how many of them at the least."""
_CONFIDENCE = 0.05
_LARGEST = 1e4
"""Of an entry of a candidate: what has diverged must not overflow."""
_CHUNK = 1 << 23
"""Numbers that are brought to float64 at once."""
_PAIRS = 1000
"""Strangers that are compared with one another at the most."""


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
    which sees through lost contrast, and as well in the mirror; the same holds for strangers.

    >>> images = torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    >>> found = weigh_evidence(images[:1], images[:2], images[2:], ImageSpace(1, 4, 4))
    >>> found.p[0] < 1e-6, found.p[1] > 0.02, found.nearest
    (True, True, (0, 0))
    """
    usable = torch.isfinite(candidates).flatten(1).all(dim=1)
    count, per_victim = len(originals), strangers.ndim > originals.ndim
    if strangers.shape[int(per_victim)] == 0:
        return Evidence((), ())
    if not bool(usable.any()):
        return Evidence((1.0,) * count, (-1,) * count)
    parts = []
    if paired:
        for row in range(count):
            one = slice(row, row + bool(usable[row]))
            parts.append(
                _weigh(candidates[one], originals[row][None], strangers[row] if per_victim else strangers, space)
            )
        return Evidence(
            tuple(p for (p,), _ in parts), tuple(row if at >= 0 else -1 for row, (_, (at,)) in enumerate(parts))
        )
    places = usable.nonzero().flatten()
    if per_victim:
        parts = [_weigh(candidates[places], originals[row][None], strangers[row], space) for row in range(count)]
    else:
        parts = [_weigh(candidates[places], originals, strangers, space)]
    nearest = [int(places[at]) for _, found in parts for at in found]
    return Evidence(tuple(p for one, _ in parts for p in one), tuple(nearest))


def _weigh(
    candidates: Tensor, originals: Tensor, strangers: Tensor, space: InputSpace
) -> tuple[list[float], list[int]]:
    """The p-value of each original, and its nearest candidate by the statistic that says more."""
    if len(candidates) == 0:
        return [1.0] * len(originals), [-1] * len(originals)
    own, others = _distances(originals, candidates, space), _distances(strangers, candidates, space)
    least, nearest = [1.0] * len(originals), [0] * len(originals)
    for statistic, (of_originals, of_strangers) in enumerate(zip(own, others, strict=True)):
        crowd = of_strangers.min(dim=1).values.sort().values
        distance, at = of_originals.min(dim=1)
        exponent = tail_exponent(crowd)
        if isinstance(space, TableSpace):
            exponent = min(exponent, _continuous(strangers, space) / 2)
        for row, value in enumerate(distance.tolist()):
            p = rank_or_margin(value, crowd, exponent)
            if p < least[row] or statistic == 0:
                least[row], nearest[row] = p, int(at[row])
    return [min(1.0, max(_LEAST, p * len(own))) for p in least], nearest


def rank_or_margin(distance: float, crowd: Tensor, exponent: float) -> float:
    """The p-value of a distance among the sorted ones of a crowd."""
    nearer = int(torch.searchsorted(crowd, distance + _RESOLUTION, right=True))
    if nearer:
        return (1 + nearer) / (len(crowd) + 1)
    ratio = 0.0 if distance < _RESOLUTION else distance / float(crowd[0])
    return (ratio**exponent if exponent > 0 else 1.0) / (len(crowd) + 1)


def tail_exponent(crowd: Tensor) -> float:
    """How fast the probability of small distances falls, P(d < t) ~ t^a: Hill's estimate at its lower 95 % limit.

    Equal distances count once: copies among the strangers make no tail steeper. 0 where fewer than three differ.

    >>> tail_exponent(torch.linspace(0, 1, 10001, dtype=torch.float64)[1:].sqrt()) > 1.8  # P(d < t) = t^2
    True
    """
    distances = crowd.sort().values.unique()
    lowest = distances[distances > _RESOLUTION][: max(_FEWEST, round(_TAIL * len(crowd)))]
    if len(lowest) < 3:
        return 0.0
    spacings = float((lowest[-1] / lowest[:-1]).log().sum())
    return float(stats.gamma.ppf(_CONFIDENCE, len(lowest) - 1)) / spacings


def _distances(inputs: Tensor, candidates: Tensor, space: InputSpace) -> list[Tensor]:
    """Of each input (rows) from each candidate (columns), by each statistic, in float64."""
    images = isinstance(space, ImageSpace)
    given = candidates.double().clamp(-_LARGEST, _LARGEST)
    views = [space.vectors(view) for view in ((given, given.flip(-1)) if images else (given,))]
    rows = max(1, _CHUNK // views[0].shape[1])
    parts = [_compare(space.vectors(chunk.double()), views, space, images) for chunk in inputs.split(rows)]
    return [torch.cat(part) for part in zip(*parts, strict=True)]


def _compare(vectors: Tensor, views: list[Tensor], space: InputSpace, images: bool) -> list[Tensor]:
    if not images:
        lengths = torch.cdist(vectors, views[0], compute_mode="donot_use_mm_for_euclid_dist")
        return [lengths.square() / space.parts]
    # In float64 what cancels in |a|^2 + |b|^2 - 2ab lies far below the resolution.
    given, size = views[0], vectors.shape[1]
    products = torch.stack([vectors @ view.mT for view in views]).amax(dim=0)
    squares = vectors.square().sum(dim=1)[:, None] + given.square().sum(dim=1)
    means = vectors.mean(dim=1)[:, None], given.mean(dim=1)[None]
    spread = _spread(vectors)[:, None] * _spread(given)[None]
    correlation = (products - size * means[0] * means[1]) / (size * spread)
    # An image without contrast correlates with none.
    unlike = torch.where(spread > 0, 1 - correlation, 1.0)
    return [((squares - 2 * products) / size).clamp_min(0), unlike.clamp(0, 2)]


def _spread(vectors: Tensor) -> Tensor:
    """The standard deviation of the entries, 0 where there is next to none."""
    spread = vectors.std(dim=1, correction=0)
    return torch.where(spread > 1e-4, spread, 0.0)


def _continuous(rows: Tensor, space: TableSpace) -> int:
    """How many columns hold numbers that hardly ever repeat: the others match by chance alone."""
    columns = zip(space.columns, space.blocks(rows), strict=True)
    return sum(isinstance(one, Continuous) and 2 * len(block.unique()) > len(block) for one, block in columns)
