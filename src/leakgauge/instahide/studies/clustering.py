"""What the clustering attack recovers of a self-made challenge, beside its null and for less and less knowledge."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.attacks.instahide.assignment import PRESENT
from leakgauge.attacks.instahide.clustering_attack import Clustering, Unmixed
from leakgauge.attacks.instahide.crops import Cropping
from leakgauge.attacks.instahide.whitening import Whitened
from leakgauge.encryption.schemes import CrossDataset, InsideDataset, Scheme
from leakgauge.instahide.studies.publication import Deployment, Pools, Publication, publish
from leakgauge.instahide.studies.recovery import Judge, Recovery
from leakgauge.metrics.alignment import align
from leakgauge.protocol.encoded_set import EncodingObservation
from leakgauge.randomness import seeded
from leakgauge.types import Batch

Knowledge = Literal["counts", "number", "labels", "mixing"]
"""Class counts; the number of private images alone; labels alone; or the very mixing, an upper bound."""

_GREY = 0.5

DEPLOYMENTS: Mapping[str, Deployment] = MappingProxyType(
    {
        "as encrypted": Deployment(),
        "8 bits": Deployment(levels=256),
        "private images mirrored at random": Deployment(private_crops=Cropping(margin=0)),
        "private images cropped and mirrored at random": Deployment(private_crops=Cropping()),
    }
)


@dataclass(frozen=True)
class ClusteringRow:
    """One attack on one seed's encodings; ``null`` is the same attack on encodings of other images, None if not run.

    ``recall`` and ``precision`` are those of (encoding, image) incidences, images matched exclusively; ``found`` is how
    many private images the attack believes in, ``residual`` its own mean squared error in |E| on [-1, 1].
    """

    scheme: str
    attack: str
    knows: str
    deployment: str
    seed: int
    private: int
    copies: int
    seconds: float
    recovery: Recovery
    null: Recovery | None
    recall: float
    precision: float
    found: int
    residual: float
    given: tuple[str, ...]


@dataclass(frozen=True)
class Clustered:
    """A row, and the pictures it is of, original beside estimate: for a report."""

    row: ClusteringRow
    originals: Tensor
    estimates: Tensor


def cluster_encodings(
    pools: Pools,
    scheme: Scheme,
    *,
    private: int = 30,
    copies: int = 30,
    seed: int = 0,
    knows: Knowledge = "labels",
    attack: Clustering | None = None,
    deployment: str = "as encrypted",
    null: bool = True,
    judge: Judge | None = None,
) -> Clustered:
    """Publish, attack and score once; without a judge, among the auxiliary images."""
    attack = attack or Clustering()
    judge = judge or _judge(pools)
    publication = publish(scheme, pools, private, seed=seed, copies=copies, deployment=DEPLOYMENTS[deployment])
    begun = time.process_time()
    unmixed = _attacked(publication, attack, knows, seed)
    seconds = time.process_time() - begun
    estimates = _paired(unmixed, publication)
    chance = None
    if null:
        rest = replace(pools, private=_without(pools.private, publication.private))
        other = publish(scheme, rest, private, seed=seed, copies=copies, deployment=DEPLOYMENTS[deployment])
        unrelated = _paired(_attacked(other, attack, knows, seed), publication)
        chance = judge(unrelated, publication.private.images)
    recall, precision = incidences(unmixed.coefficients, _truth(publication))
    facts = unmixed.reconstruction.facts
    row = ClusteringRow(
        scheme=repr(scheme),
        attack=repr(attack),
        knows=knows,
        deployment=deployment,
        seed=seed,
        private=private,
        copies=copies,
        seconds=seconds,
        recovery=judge(estimates, publication.private.images),
        null=chance,
        recall=recall,
        precision=precision,
        found=int(facts["private images"]),
        residual=float(facts["residual"]),
        given=tuple(f"{name}: {value}" for name, value in facts.items() if isinstance(value, str))
        + (("mixing: given, an upper bound on leakage",) if knows == "mixing" else ()),
    )
    return Clustered(row, publication.private.images, estimates)


def curve_over_images(
    pools: Pools,
    scheme: Scheme | None = None,
    *,
    sizes: Sequence[int] = (20, 30, 50, 100, 200),
    copies: int = 30,
    seeds: Sequence[int] = (0,),
    knows: Sequence[Knowledge] = ("counts", "labels"),
    attack: Clustering | None = None,
    null: bool = True,
    tell: Callable[[str], None] = lambda name: None,
) -> list[Clustered]:
    """Recovery against the number of private images, with class counts told and not."""
    judge = _judge(pools)
    results = []
    for size in sizes:
        for told in knows:
            for seed in seeds:
                tell(f"{size} images, {told} known, seed {seed}")
                results.append(
                    cluster_encodings(
                        pools,
                        scheme or InsideDataset(4),
                        private=size,
                        copies=copies,
                        seed=seed,
                        knows=told,
                        attack=attack,
                        null=null,
                        judge=judge,
                    )
                )
    return results


def across_deployments(
    pools: Pools,
    scheme: Scheme | None = None,
    *,
    private: int = 30,
    copies: int = 30,
    seeds: Sequence[int] = (0,),
    deployments: Sequence[str] = tuple(DEPLOYMENTS),
    attack: Clustering | None = None,
    null: bool = True,
    tell: Callable[[str], None] = lambda name: None,
) -> list[Clustered]:
    """The same attack, from labels alone, on encodings that were rounded, and on images that were moved."""
    judge = _judge(pools)
    results = []
    for name in deployments:
        for seed in seeds:
            tell(f"{name}, seed {seed}")
            results.append(
                cluster_encodings(
                    pools,
                    scheme or InsideDataset(4),
                    private=private,
                    copies=copies,
                    seed=seed,
                    deployment=name,
                    attack=attack,
                    null=null,
                    judge=judge,
                )
            )
    return results


def across_public(
    pools: Pools,
    *,
    mixed: Sequence[int] = (4, 6),
    private: int = 30,
    copies: int = 50,
    seeds: Sequence[int] = (0,),
    knows: Knowledge = "number",
    attack: Clustering | None = None,
    null: bool = True,
    tell: Callable[[str], None] = lambda name: None,
) -> list[Clustered]:
    """Two private images and k - 2 public ones in every encoding."""
    judge = _judge(pools)
    results = []
    for k in mixed:
        for seed in seeds:
            tell(f"k = {k}, seed {seed}")
            results.append(
                cluster_encodings(
                    pools,
                    CrossDataset(k),
                    private=private,
                    copies=copies,
                    seed=seed,
                    knows=knows,
                    attack=attack,
                    null=null,
                    judge=judge,
                )
            )
    return results


def incidences(coefficients: Tensor, truth: Tensor) -> tuple[float, float]:
    """Recall and precision of which images are in which encodings, images matched to maximise the hits.

    >>> incidences(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    (0.6666666666666666, 1.0)
    """
    believed, true = (coefficients > PRESENT).double(), (truth > PRESENT).double()
    hits = believed.T @ true
    rows, columns = linear_sum_assignment(-hits.numpy())
    right = float(hits[rows, columns].sum())
    return right / float(true.sum()), right / max(1.0, float(believed.sum()))


def _without(pool: Batch, used: Batch) -> Batch:
    """The examples of a pool whose images are not among those used."""
    taken = torch.zeros(len(pool), dtype=torch.bool)
    for image in used.images:
        taken |= (pool.images == image).flatten(1).all(dim=1)
    return pool[~taken]


def _judge(pools: Pools) -> Judge:
    return Judge(pools.auxiliary, Whitened().fit(pools.auxiliary))


def _attacked(publication: Publication, attack: Clustering, knows: Knowledge, seed: int) -> Unmixed:
    observation = _told(publication, knows)
    generator = seeded(seed, "clustering")
    if knows == "mixing":
        direct = replace(attack, rounds=0)
        start = _truth(publication).to(observation.encoded.images)
        return direct.from_assignment(observation, start, publication.private.labels, generator=generator)
    return attack.unmix(observation, generator=generator)


def _told(publication: Publication, knows: Knowledge) -> EncodingObservation:
    observation, private = publication.observation, publication.private
    if knows in ("counts", "mixing"):
        counts = torch.bincount(private.labels, minlength=observation.encoded.labels.shape[1])
        return replace(observation, num_private=len(private), class_counts=counts)
    return replace(observation, num_private=len(private)) if knows == "number" else observation


def _truth(publication: Publication) -> Tensor:
    own, mixing = publication.observation.private_per_encoding, publication.mixing
    kept = mixing._replace(coefficients=mixing.coefficients[:, :own], indices=mixing.indices[:, :own])
    return kept.matrix(len(publication.private))


def _paired(unmixed: Unmixed, publication: Publication) -> Tensor:
    """Estimates in the order of the originals, one for one; grey where the attack believed in fewer images."""
    paired = align(unmixed.reconstruction, publication.private).reconstructions
    return torch.where(paired.isnan(), _GREY, paired).to(publication.private.images)
