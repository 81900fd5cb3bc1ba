"""Bins that sort the examples of a batch: where their edges lie, how many examples to expect alone, and the reading."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.types import Shape

AGREEMENT = 1e-2
"""Largest difference, root mean square in units of the entries, of one image found behind two measures."""


def expected_alone(num_examples: int, bins: int, measures: int = 1) -> float:
    """How many of n examples are expected alone in their bin under at least one of several independent measures.

    Each measure has ``bins`` bins of equal probability. n (1 - (1 - (1 - 1/k)^(n-1))^measures).

    >>> round(expected_alone(64, 1000), 1)
    60.1
    >>> round(expected_alone(64, 250, measures=4), 1)
    63.8
    """
    alone = (1 - 1 / bins) ** (num_examples - 1)
    return num_examples * (1 - (1 - alone) ** measures)


def measures_of(shape: Shape, count: int) -> Tensor:
    """Linear functionals of images, count x pixels: the brightness, then cosine waves from low to high frequency.

    Waves of natural images are uncorrelated, so that two images that meet in a bin of one part in that of another.
    """
    channels, height, width = shape
    orders = [(row, column) for row in range(height) for column in range(width)]
    orders.sort(key=lambda order: (order[0] + order[1], order))
    if count > len(orders):
        raise InvalidCase(f"Images of {height} x {width} have {len(orders)} measures, got {count}; ask for fewer.")
    waves = [_wave(row, height)[:, None] * _wave(column, width)[None] for row, column in orders[:count]]
    return torch.stack([wave.expand(channels, height, width).flatten() for wave in waves]) / math.prod(shape)


def _wave(order: int, size: int) -> Tensor:
    return torch.cos(math.pi * order * (torch.arange(size, dtype=torch.float64) + 0.5) / size)


def normal_edges(bins: int, mean: float, spread: float) -> Tensor:
    """Lower edges of bins that are equally likely under a normal distribution; the first lies below every image."""
    shares = torch.arange(1, bins, dtype=torch.float64) / bins
    quantiles = mean + spread * torch.special.ndtri(shares)
    return torch.cat((quantiles.new_full((1,), min(-2.0, mean - 10 * spread)), quantiles))


def sample_edges(bins: int, sample: Tensor) -> Tensor:
    """The same for the distribution of a sample: that of its values, each blurred [by Silverman's rule]."""
    values = sample.double().sort().values
    low, high = float(values[0]), float(values[-1])
    # Blurred, because values in between are as likely, and some images lie beyond every one of the sample.
    inner = torch.quantile(values, torch.tensor([0.25, 0.75], dtype=torch.float64)).diff() / 1.34
    spread = min(float(values.std(unbiased=False)), float(inner)) or 1.0
    blur = 0.9 * spread * len(values) ** -0.2
    grid = torch.linspace(low - 6 * blur, high + 6 * blur, 4096, dtype=torch.float64)
    shares = torch.stack([torch.special.ndtr((part[:, None] - values) / blur).mean(dim=1) for part in grid.split(256)])
    wanted = torch.arange(1, bins, dtype=torch.float64) / bins
    place = torch.searchsorted(shares.flatten(), wanted).clamp(max=len(grid) - 1)
    return torch.cat((grid.new_full((1,), min(-2.0, low - 10 * blur)), grid[place]))


@dataclass(frozen=True)
class BinContents:
    """What each bin of an update holds, measure after measure: k examples' inputs, weighted and added, and weights."""

    measures: Tensor
    """measures x pixels."""
    edges: Tensor
    """measures x bins, lower ends."""
    contents: Tensor
    """measures x bins x pixels."""
    weights: Tensor
    """measures x bins."""
    noise: float
    """Weights at or below this are none."""
    low: float = -0.1
    high: float = 1.1
    """Entries of what is sorted lie between these, give or take."""
    unit: float = 1.0
    """How large its entries are."""

    def occupied(self) -> Tensor:
        return self.weights.abs() > self.noise

    def places(self, image: Tensor) -> Tensor:
        """The bin of an image under each measure."""
        values = (self.measures @ image)[:, None]
        return (torch.searchsorted(self.edges, values, right=True).flatten() - 1).clamp(min=0)

    def copy(self) -> BinContents:
        return replace(self, contents=self.contents.clone(), weights=self.weights.clone())

    def take_out(self, image: Tensor, weight: Tensor) -> None:
        """Empty the bin of an image, under every measure, of what it put there."""
        rows, places = torch.arange(len(self.measures)), self.places(image)
        self.contents[rows, places] -= weight * image
        self.weights[rows, places] -= weight


@dataclass(frozen=True)
class Sorted:
    """Images read off bins, the surest first; ``confirmed`` of them were isolated by two measures."""

    images: Tensor
    confirmed: int
    occupied: int


def read_cells(cells: BinContents, num_examples: int) -> Sorted:
    """The images of a batch: each that is alone in a bin, and with several measures those that this uncovers.

    Two measures that isolate the same image confirm each other, since a mixture of several would have to meet in both.
    A confirmed image is taken out of all its bins, and what it shared them with is alone there [peeling, as in an
    invertible Bloom lookup table]. Then the rest, as it stands, as many as there are examples.
    """
    occupied = int(cells.occupied().sum(dim=1).max())
    found: list[Tensor] = []
    cells = cells.copy()
    while len(cells.measures) > 1 and len(found) < num_examples:
        fresh = _confirmed(cells)[: num_examples - len(found)]
        if not fresh:
            break
        for image, weight in fresh:
            found.append(image)
            cells.take_out(image, weight)
    left = cells.occupied()
    measure = int(left.sum(dim=1).argmax())
    contents, weights = cells.contents[measure], cells.weights[measure]
    order = weights.abs().argsort(descending=True)
    chosen = order[left[measure][order]][: num_examples - len(found)].sort().values
    rest = contents[chosen] / weights[chosen, None]
    return Sorted(torch.cat((torch.stack(found), rest)) if found else rest, len(found), occupied)


def _confirmed(cells: BinContents) -> list[tuple[Tensor, Tensor]]:
    """Images, with their weights, that are alone in their bins under two measures or more: those under the most."""
    occupied = cells.occupied()
    rows, columns = occupied.nonzero(as_tuple=True)
    every = torch.arange(len(cells.measures), device=rows.device)
    taken: set[tuple[int, int]] = set()
    found: list[tuple[int, Tensor, Tensor]] = []
    for row, column in zip(rows.tolist(), columns.tolist()):
        weight = cells.weights[row, column]
        image = cells.contents[row, column] / weight
        if (row, column) in taken or float(image.min()) < cells.low or float(image.max()) > cells.high:
            continue
        places = cells.places(image)
        if not bool(occupied[every, places].all()):  # an image lies in a bin of every measure
            continue
        weights = cells.weights[every, places]
        alike = torch.isclose(weights, weight, rtol=AGREEMENT, atol=0.0)
        twins = cells.contents[every, places][alike] / weights[alike, None]
        agreeing = int(((twins - image).square().mean(dim=1).sqrt() < AGREEMENT * cells.unit).sum())
        if agreeing > 1:
            found.append((agreeing, image, weight))
            taken.update(enumerate(places.tolist()))
    most = max((agreeing for agreeing, _, _ in found), default=0)
    return [(image, weight) for agreeing, image, weight in found if agreeing == most]
