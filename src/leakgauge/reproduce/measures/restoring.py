"""What the clustering attack recovers of a self-made challenge, beside its null and for less and less knowledge."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.attacks.encodings.algebra.whitening import Whitened
from leakgauge.attacks.encodings.clustering.assignment import PRESENT
from leakgauge.attacks.encodings.clustering.attack import Clustering
from leakgauge.attacks.encodings.clustering.published import PublishedRecipe
from leakgauge.encodings.crops import Cropping
from leakgauge.encodings.schemes import InsideDataset, Scheme
from leakgauge.errors import InvalidCase
from leakgauge.metrics.alignment import align
from leakgauge.progress import Tick
from leakgauge.protocol.encoding import EncodingObservation
from leakgauge.randomness import seeded
from leakgauge.reproduce.measures.pools import Deployment, Pools, PoolSource, Publication, publish
from leakgauge.reproduce.measures.recovery import Judge, Recovery, over_seeds
from leakgauge.reproduce.table import Bench, Found, Measure, Measured
from leakgauge.types import Batch, Reconstruction

Knowledge = Literal["counts", "number", "labels", "mixing"]
"""Class counts; the number of private images alone; labels alone; or the very mixing, an upper bound."""

_GREY = 0.5
_QUANTITIES = ("psnr_fitted", "identification_by_correlation", "ssim_fitted", "psnr", "identification_whitened")

DEPLOYMENTS: Mapping[str, Deployment] = MappingProxyType(
    {
        "as encrypted": Deployment(),
        "8 bits": Deployment(levels=256),
        "private images mirrored at random": Deployment(private_crops=Cropping(margin=0)),
        "private images cropped and mirrored at random": Deployment(private_crops=Cropping()),
        "public images cropped and mirrored at random": Deployment(public_crops=Cropping()),
    }
)


@dataclass(frozen=True)
class Trial:
    """What is published and how it is attacked: ``copies`` encryptions of ``private`` images, in some deployment."""

    scheme: Scheme = field(default_factory=lambda: InsideDataset(4))
    private: int = 30
    copies: int = 30
    knows: Knowledge = "labels"
    deployment: str = "as encrypted"
    attack: Clustering | PublishedRecipe = field(default_factory=Clustering)

    def __post_init__(self) -> None:
        if self.deployment not in DEPLOYMENTS:
            raise InvalidCase(f"There is no deployment {self.deployment!r}; choose from {', '.join(DEPLOYMENTS)}.")

    def publish(self, pools: Pools, seed: int) -> Publication:
        deployment = DEPLOYMENTS[self.deployment]
        return publish(self.scheme, pools, self.private, seed=seed, copies=self.copies, deployment=deployment)

    def unmix(self, publication: Publication, seed: int) -> Reconstruction:
        observation, generator = _told(publication, self.knows), seeded(seed, "clustering")
        if self.knows == "mixing":
            direct = replace(self.attack, rounds=0) if isinstance(self.attack, Clustering) else self.attack
            start = _truth(publication).to(observation.encoded.images)
            return direct.from_assignment(observation, start, publication.private.labels, generator=generator)
        return self.attack(observation, generator=generator)


@dataclass(frozen=True)
class Clustered:
    """What came back of one seed's encodings, and the originals beside it.

    ``null`` scores it against other images, encrypted the same way. ``recall`` and ``precision`` are those of
    (encoding, image) incidences, images matched exclusively; ``found`` is how many private images the attack believes
    in, ``residual`` its own mean squared error in |E| on [-1, 1]. ``seconds`` are those of the processor.
    """

    originals: Tensor
    estimates: Tensor
    seconds: float
    recovery: Recovery
    null: Recovery
    recall: float
    precision: float
    recall_null: float
    precision_null: float
    found: int
    residual: float
    given: tuple[str, ...]


def cluster_encodings(pools: Pools, trial: Trial, *, seed: int = 0, judge: Judge | None = None) -> Clustered:
    """Publish, attack and score once; without a judge, among the auxiliary images."""
    judge = judge or judge_among(pools.auxiliary)
    publication = trial.publish(pools, seed)
    begun = time.process_time()
    found = trial.unmix(publication, seed)
    seconds = time.process_time() - begun
    # An attack on other encodings scored against these images, with the two exchanged, which costs no second attack.
    others = trial.publish(replace(pools, private=_without(pools.private, publication.private)), seed)
    assert found.decoding is not None
    estimates, coefficients = _paired(found, publication), found.decoding.coefficients
    recall, precision = incidences(coefficients, _truth(publication))
    # In another order, so that nothing is right because both sets are encrypted image by image.
    order = torch.randperm(len(coefficients), generator=seeded(seed, "null"))
    recall_null, precision_null = incidences(coefficients[order], _truth(others))
    return Clustered(
        publication.private.inputs,
        estimates,
        seconds,
        recovery=judge(estimates, publication.private.inputs),
        null=judge(_paired(found, others), others.private.inputs),
        recall=recall,
        precision=precision,
        recall_null=recall_null,
        precision_null=precision_null,
        found=int(found.facts["private images"]),
        residual=float(found.facts["residual"]),
        given=tuple(f"{name}: {value}" for name, value in found.facts.items() if isinstance(value, str))
        + (("mixing: given, an upper bound on leakage",) if trial.knows == "mixing" else ()),
    )


def judge_among(decoys: Tensor) -> Judge:
    """Scores beside decoys, whose whitening is the one that is used."""
    return Judge(decoys, Whitened().fit(decoys))


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
    for image in used.inputs:
        taken |= (pool.inputs == image).flatten(1).all(dim=1)
    return pool[~taken]


def _told(publication: Publication, knows: Knowledge) -> EncodingObservation:
    observation, private = publication.observation, publication.private
    if knows in ("counts", "mixing"):
        counts = torch.bincount(private.labels, minlength=observation.encoded.labels.shape[1])
        return replace(observation, num_private=len(private), class_counts=counts)
    return replace(observation, num_private=len(private)) if knows == "number" else observation


def _truth(publication: Publication) -> Tensor:
    own = slice(publication.observation.private_per_encoding)
    return publication.mixing.columns(own).matrix(len(publication.private))


def _paired(found: Reconstruction, publication: Publication) -> Tensor:
    """Estimates in the order of the originals, one for one; grey where the attack believed in fewer images."""
    paired = align(found, publication.private).reconstructions
    return torch.where(paired.isnan(), _GREY, paired).to(publication.private.inputs)


@dataclass(frozen=True)
class ClusteringRecovery(Measure):
    """What a trial restores of private images, from all encodings together."""

    trial: Trial
    pools: PoolSource
    seeds: int

    def planned(self) -> dict[str, Any]:
        trial = self.trial
        return {
            "scheme": trial.scheme,
            "attack": trial.attack,
            "deployment": trial.deployment,
            "told": trial.knows,
            "private_images": trial.private,
            "encryptions_of_each": trial.copies,
        }

    def __call__(self, bench: Bench, names: Sequence[str]) -> dict[str, Found]:
        pools, runs = self.pools(bench), []
        judge = bench.share(f"judge among {self.pools}", lambda: judge_among(pools.auxiliary))
        progress = bench.begin("attacking")
        for number in range(self.seeds):
            progress(Tick(number, number / self.seeds))
            runs.append(cluster_encodings(pools, self.trial, seed=bench.seed + number, judge=judge))
        return dict.fromkeys(names, self._found(runs))

    def _found(self, runs: Sequence[Clustered]) -> Found:
        images = len(runs[0].originals)
        ours = over_seeds([one.recovery for one in runs], _QUANTITIES, images)
        null = over_seeds([one.null for one in runs], _QUANTITIES, images)
        ours |= over_seeds(runs, ("recall", "precision"), images)
        null["recall"] = Measured.over_seeds([one.recall_null for one in runs], images)
        null["precision"] = Measured.over_seeds([one.precision_null for one in runs], images)
        ours["cpu_seconds"] = Measured.over_seeds([one.seconds for one in runs], images)
        setting = self.described() | {
            "images_believed_in": [one.found for one in runs],
            "residual": [one.residual for one in runs],
        }
        pictures = runs[0].originals, runs[0].estimates
        return Found.of(ours, null, sum(one.seconds for one in runs), setting, runs[0].given, pictures)
