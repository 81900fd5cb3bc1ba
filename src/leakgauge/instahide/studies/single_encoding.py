"""What one encoding gives away of its private image once the public images in it are found and taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from leakgauge.attacks.encodings.phase_retrieval import PhaseRetrieval
from leakgauge.attacks.encodings.pursuit import PublicPursuit, remainder
from leakgauge.attacks.encodings.whitening import Whitened
from leakgauge.encodings.schemes import Scheme
from leakgauge.errors import InvalidCase
from leakgauge.instahide.studies.public_images import given_to_search, hit_members
from leakgauge.instahide.studies.publication import Deployment, Pools, publish
from leakgauge.instahide.studies.recovery import Judge, Recovery
from leakgauge.randomness import seeded


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
