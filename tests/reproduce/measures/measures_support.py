"""What encodings give away that no table asks for: which share a private image, and the image in a single one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from encodings_support import area
from leakgauge.attacks.encodings.algebra.whitening import (
    AsPublished,
    Features,
    HighPass,
    Magnitudes,
    Squares,
    UnitLength,
    View,
    Whitened,
    unit,
)
from leakgauge.attacks.encodings.base import auxiliary_of
from leakgauge.attacks.encodings.search.phase_retrieval import PhaseRetrieval
from leakgauge.attacks.encodings.search.public_search import PublicPursuit, remainder
from leakgauge.attacks.encodings.search.statistics import blocks, top_matches, without_own
from leakgauge.encodings.schemes import Scheme
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded
from leakgauge.reproduce.measures.pools import Deployment, Pools, Publication, publish
from leakgauge.reproduce.measures.recovery import Judge, Recovery
from leakgauge.reproduce.measures.searching import given_to_search, hit_members


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
        "inner product, published": (AsPublished(), UnitLength()),
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
            nearest = top_matches(values, blocks(values), most=neighbours + 1, score="inner").indices
            nearest = without_own(nearest, torch.arange(len(values)))
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


@dataclass(frozen=True)
class SingleEncodingRow:
    """Recovery of the private image from one encoding, beside that of ``null``, another private image.

    ``baseline`` scores the encoding itself as if it were the image. ``found`` is the share of its public images that
    were named.
    """

    scheme: str
    seed: int
    encodings: int
    found: float
    recovery: Recovery
    baseline: Recovery
    null: Recovery
    given: tuple[str, ...]


@dataclass(frozen=True)
class Remainders:
    """A row with its images side by side: private, published, unmasked, recovered."""

    row: SingleEncodingRow
    originals: Tensor
    encodings: Tensor
    unmasked: Tensor
    estimates: Tensor


def recover_from_one(
    pools: Pools,
    scheme: Scheme,
    *,
    queries: int = 200,
    seeds: Sequence[int] = (0,),
    decoys: Tensor | None = None,
    deployment: Deployment | None = None,
) -> list[Remainders]:
    """Mixup by `PublicPursuit`, InstaHide by `PhaseRetrieval`; the decoys default to the auxiliary images."""
    if scheme.private_per_encoding != 1:
        raise InvalidCase(f"{scheme} leaves a mixture of private images; study one with a single private image.")
    deployment = deployment or Deployment()
    judge = Judge(pools.auxiliary if decoys is None else decoys, Whitened().fit(pools.auxiliary))
    results = []
    for seed in seeds:
        publication = publish(scheme, pools, queries, seed=seed, deployment=deployment)
        observation, generator = publication.observation, seeded(seed, "attack")
        shown = observation.encoded.images
        if scheme.signed:
            indices, _, unmasked, estimates = PhaseRetrieval()(observation, generator=generator)
        else:
            pursuit = PublicPursuit()(observation, generator=generator)
            indices, unmasked, estimates = pursuit.indices, shown, remainder(shown, pools.public, pursuit)
        originals = publication.private.inputs
        row = SingleEncodingRow(
            repr(scheme),
            seed,
            queries,
            found=float(hit_members(indices, publication.members).double().mean()),
            recovery=judge(estimates, originals),
            baseline=judge(shown, originals),
            null=judge(estimates, originals.roll(1, dims=0)),
            given=given_to_search(pools, scheme, deployment),
        )
        results.append(Remainders(row, originals, shown, unmasked, estimates))
    return results
