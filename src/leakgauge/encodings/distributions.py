"""Whether encryptions of one image can be told from those of others by simple statistics."""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy import stats
from torch import Generator, Tensor

from leakgauge.errors import InvalidCase

LOCATIONS = 4
STATISTICS = ("mean", "std", "total variation", *(f"location {number + 1}" for number in range(LOCATIONS)))


class Difference(NamedTuple):
    """One image and one statistic.

    ``alone_*``: the mean p-value of single encryptions against all encryptions, and against those of other images, as
    published. A sample of one can hardly be told from anything, so that p-value is near 1/2 whatever the image.
    ``together``: the p-value of all its encryptions at once against those of the others, and their largest
    ``distance`` of distribution functions.
    """

    image: int
    statistic: str
    alone_all: float
    alone_other: float
    together: float
    distance: float


def statistics_of(encodings: Tensor, locations: Tensor) -> Tensor:
    """The seven statistics of each encoding, ... x 7: mean, deviation, total variation, and pixels at four places."""
    flat = encodings.flatten(-3)
    down, across = encodings.diff(dim=-2).abs().flatten(-3), encodings.diff(dim=-1).abs().flatten(-3)
    variation = down.sum(dim=-1) + across.sum(dim=-1)
    return torch.cat([torch.stack([flat.mean(-1), flat.std(-1), variation], dim=-1), flat[..., locations]], dim=-1)


def compare(encodings: Tensor, *, singles: int = 50, generator: Generator) -> list[Difference]:
    """Kolmogorov-Smirnov tests of encryptions, images x encryptions c h w [Huang et al., 2020, Table 4, appendix E.3].

    ``singles`` encryptions of each image are tested one by one.
    """
    if encodings.ndim != 5 or len(encodings) < 2 or encodings.shape[1] < 2:
        raise InvalidCase(
            f"Encodings shaped {tuple(encodings.shape)} cannot be compared; pass two or more images x encryptions of "
            "each, as images encryptions c h w."
        )
    if not 1 <= singles <= encodings.shape[1]:
        raise InvalidCase(f"Of {encodings.shape[1]} encryptions an image, {singles} cannot be tested; ask for fewer.")
    places = torch.randperm(encodings[0, 0].numel(), generator=generator)[:LOCATIONS]
    values = statistics_of(encodings.double(), places)
    chosen = torch.stack([torch.randperm(values.shape[1], generator=generator)[:singles] for _ in values])
    return [
        _difference(values[:, :, column], image, name, chosen[image])
        for image in range(len(values))
        for column, name in enumerate(STATISTICS)
    ]


def _difference(values: Tensor, image: int, name: str, chosen: Tensor) -> Difference:
    own, everything = values[image], values.flatten()
    others = torch.cat([values[:image], values[image + 1 :]]).flatten()
    test = stats.ks_2samp(own.numpy(), others.numpy(), method="asymp")
    return Difference(
        image,
        name,
        float(single_p_values(own[chosen], everything).mean()),
        float(single_p_values(own[chosen], others).mean()),
        float(test.pvalue),
        float(test.statistic),
    )


def single_p_values(singles: Tensor, sample: Tensor) -> Tensor:
    """The exact two-sided Kolmogorov-Smirnov p-value of each number, as a sample of one, against a larger sample.

    The distance is max(below, above) / m, by how many of the m lie strictly below and above it; each of the m + 1
    places is as likely as any other, so p is the share of places whose distance is as large.
    """
    ordered, m = sample.sort().values, len(sample)
    below = torch.searchsorted(ordered, singles)
    above = m - torch.searchsorted(ordered, singles, right=True)
    places = torch.arange(m + 1)
    reached = torch.maximum(places, m - places)
    return (reached >= torch.maximum(below, above)[:, None]).double().mean(dim=1)
