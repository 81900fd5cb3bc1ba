"""Which encodings share a private image: a score for every two of them, and groups class by class."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from scipy.linalg import eigh
from sklearn.cluster import KMeans
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from leakgauge.attacks.encodings.algebra.whitening import Features, HighPass, Squares, View, Whitened, unit
from leakgauge.attacks.encodings.clustering.assignment import PRESENT, flow
from leakgauge.attacks.encodings.simulation import mixtures
from leakgauge.errors import MissingKnowledge
from leakgauge.protocol.encoding import EncodingObservation

_SYNTHETIC = 6000


@dataclass(frozen=True)
class PairSimilarity:
    """cos(f(E_a) - mean, f(E_b) - mean), f some features of E^2; the mean is that of all encodings.

    For pixels that are independent Gaussians the covariance of E_a^2 and E_b^2 is 2 (lam_a . lam_b)^2; a high-pass
    filter removes what all pictures have in common.
    """

    view: View = field(default_factory=Squares)
    features: Features = field(default_factory=HighPass)

    def __call__(self, observation: EncodingObservation, *, generator: Generator) -> Tensor:
        shown = self.view.encodings(observation.encoded.images)
        rows = self.features.fit(self._example(observation, generator))(shown)
        rows = unit(rows - rows.mean(dim=0))
        return rows @ rows.mT

    def _example(self, observation: EncodingObservation, generator: Generator) -> Tensor:
        if not isinstance(self.features, Whitened):
            return observation.encoded.images
        if observation.auxiliary is None:
            raise MissingKnowledge(
                "Whitened pairs need `auxiliary` images to learn the covariance from; pass some, or use high-passed "
                "ones."
            )
        mixed = mixtures(observation.auxiliary, observation.k, _SYNTHETIC, generator=generator)
        return self.view.encodings(mixed.images)


_RESTARTS = 4
_BALANCING = 3
_SLACK = 1.05
"""How much more than its share of encodings a group may take."""


def spectral(similarity: Tensor, groups: int, *, generator: Generator) -> Tensor:
    """Groups by k-means on the top eigenvectors of D^-1/2 S+ D^-1/2 [Ng et al., 2001]."""
    if groups <= 1 or len(similarity) <= groups:
        return torch.arange(len(similarity)) % max(1, groups)
    largest = (len(similarity) - groups, len(similarity) - 1)
    vectors = torch.from_numpy(eigh(_normalise(similarity).double().numpy(), subset_by_index=largest)[1])
    vectors = vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1e-12)
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    return torch.from_numpy(KMeans(groups, n_init=_RESTARTS, random_state=seed).fit_predict(vectors.numpy())).long()


def balance(similarity: Tensor, groups: Tensor, count: int) -> Tensor:
    """The groups once every encoding joins the one it resembles most and none takes more than its share: a flow."""
    members = similarity.clone().fill_diagonal_(0)
    capacity = torch.full((count,), math.ceil(_SLACK * len(groups) / count))
    for _ in range(_BALANCING):
        belongs = one_hot(groups, count).to(members)
        costs = -(members @ belongs) / belongs.sum(dim=0).clamp_min(1)
        groups = flow(costs, torch.ones(len(groups), dtype=torch.long), capacity).long().argmax(dim=1)
    return groups


def groups_by_class(similarity: Tensor, labels: Tensor, classes: Tensor, *, generator: Generator) -> Tensor:
    """First coefficients, t x n: in every class each encoding's weight on the one image it is grouped under."""
    found = labels.new_zeros(len(labels), len(classes))
    for label in classes.unique().tolist():
        images = (classes == label).nonzero().flatten()
        rows = (labels[:, label] > PRESENT).nonzero().flatten()
        if not len(rows):
            continue
        among = similarity[rows][:, rows]
        groups = spectral(among, len(images), generator=generator)
        if len(images) > 1:
            groups = balance(among, groups, len(images))
        found[rows, images[groups]] = labels[rows, label]
    return found


def grow_clusters(
    similarity: Tensor, groups: int, size: int, *, generator: Generator, seeds: int | None = None
) -> Tensor:
    """Clusters, groups x size, grown greedily from random seeds: the published rule [Carlini et al., 2021].

    A cluster takes the encoding with the largest summed similarity to its members, the first time a random one of the
    eleven best; it is kept if its first half lies within more than two other clusters and it shares less than half of
    itself with those already kept. Fewer than ``groups`` are returned if fewer qualify.
    """
    count = len(similarity)
    starts = torch.randperm(count, generator=generator)[: seeds or min(count, 20 * groups)]
    size = min(size, count)
    clusters = torch.stack([_grow(similarity, int(start), size, generator) for start in starts])
    inside = one_hot(clusters, count).sum(dim=1).double()
    for share in (0.5, 0.25):
        core = one_hot(clusters[:, : max(2, round(share * size))], count).sum(dim=1).double()
        supported = ((core @ inside.T) >= core.sum(dim=1, keepdim=True) - 0.5).sum(dim=1) - 1 > 2
        kept: list[int] = []
        for row in supported.nonzero().flatten().tolist():
            if all(float(inside[row] @ inside[other]) < size / 2 for other in kept):
                kept.append(row)
        if len(kept) >= groups:
            break
    return clusters[kept[:groups]]


def _grow(similarity: Tensor, start: int, size: int, generator: Generator) -> Tensor:
    members, total = [start], similarity[start].clone()
    total[start] = -torch.inf
    while len(members) < size:
        best = int(total.argmax())
        if len(members) == 1:
            near = total.topk(min(11, len(total) - 1)).indices
            best = int(near[int(torch.randint(len(near), (), generator=generator))])
        members.append(best)
        total = total + similarity[best]
        total[members] = -torch.inf
    return torch.tensor(members)


def _normalise(similarity: Tensor) -> Tensor:
    weights = similarity.clamp_min(0).clone().fill_diagonal_(0)
    scale = weights.sum(dim=1).clamp_min(1e-12).rsqrt()
    return scale[:, None] * weights * scale
