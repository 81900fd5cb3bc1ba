"""Which encodings share a private image: the inner product within a private set [Huang et al., 2020, section 2.1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy.stats import rankdata
from torch import Tensor

from leakgauge.attacks.encodings.knowledge import auxiliary_of
from leakgauge.attacks.encodings.ranking import blocks, top_matches
from leakgauge.attacks.encodings.views import AsPublished, Magnitudes, Squares, View
from leakgauge.attacks.encodings.whitening import Features, HighPass, Normalised, Whitened, unit
from leakgauge.encodings.schemes import Scheme
from leakgauge.instahide.studies.publication import Deployment, Pools, Publication, publish
from leakgauge.randomness import seeded


@dataclass(frozen=True)
class PairRow:
    """Area under the curve for pairs of encodings that share one private image, against pairs that share none.

    ``auc_large`` counts pairs in which both shares of it exceed 1/k; ``auc_null`` has the similarities shuffled.
    ``precision`` is the share of nearest encodings with a private image in common, ``precision_null`` that of all.
    """

    scheme: str
    similarity: str
    seed: int
    encodings: int
    auc: float
    auc_large: float
    auc_null: float
    precision: float
    precision_null: float


def similarities(demasker: View | None = None) -> dict[str, tuple[View, Features]]:
    """What may be compared of two encodings: the published inner product first."""
    found: dict[str, tuple[View, Features]] = {
        "inner product, published": (AsPublished(), Normalised()),
        "inner product, whitened": (AsPublished(), Whitened()),
        "magnitudes, whitened": (Magnitudes(), Whitened()),
        "squares, high-pass": (Squares(), HighPass()),
    }
    return found if demasker is None else found | {"demasked, whitened": (demasker, Whitened())}


def compare_pairs(
    pools: Pools,
    scheme: Scheme,
    compared: Mapping[str, tuple[View, Features]],
    *,
    private: int = 50,
    copies: int = 10,
    neighbours: int = 5,
    seeds: Sequence[int] = (0,),
    deployment: Deployment | None = None,
) -> list[PairRow]:
    """A row for every similarity and seed."""
    rows = []
    for seed in seeds:
        publication = publish(scheme, pools, private, seed=seed, copies=copies, deployment=deployment)
        one, large, none = _relations(publication)
        related = ~none.fill_diagonal_(True)
        none = none.fill_diagonal_(False)
        for name, (view, features) in compared.items():
            mapped = features.fit(view.images(auxiliary_of(publication.observation, name)))
            values = unit(mapped(view.encodings(publication.observation.encoded.images)))
            scores = values @ values.mT
            nearest = top_matches(values, blocks(values), most=neighbours, score="inner", apart=True).indices
            shuffled = scores.flatten()[torch.randperm(scores.numel(), generator=seeded(seed, "null"))].view_as(scores)
            rows.append(
                PairRow(
                    repr(scheme),
                    name,
                    seed,
                    len(values),
                    auc=area(scores[one], scores[none]),
                    auc_large=area(scores[large], scores[none]),
                    auc_null=area(shuffled[one], shuffled[none]),
                    precision=float(related.gather(1, nearest).double().mean()),
                    precision_null=float(related.double().sum() / (related.numel() - len(related))),
                )
            )
    return rows


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


def _relations(publication: Publication) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs that share one private image, those of them with both shares above 1/k, and pairs that share none."""
    own = publication.observation.private_per_encoding
    indices, shares = publication.mixing.indices[:, :own], publication.mixing.coefficients[:, :own]
    empty = shares.new_zeros(len(indices), len(publication.private))
    held = empty.scatter(1, indices, 1.0)
    much = empty.scatter(1, indices, (shares > 1 / publication.observation.k).to(shares))
    common = held @ held.mT
    one = (common == 1).fill_diagonal_(False)
    return one, one & (much @ much.mT > 0), common == 0
