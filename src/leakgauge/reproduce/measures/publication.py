"""What is published: private images encrypted as a deployment does it, and what it hides of how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.attacks.encodings.search.crops import Cropping
from leakgauge.encodings.keys import SeededKeys
from leakgauge.encodings.schemes import Scheme, encrypt
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import EncodedSet, EncodingObservation, Mixing, stack_mixings
from leakgauge.randomness import seeded
from leakgauge.reproduce.measures.pools import Pools
from leakgauge.types import Batch


@dataclass(frozen=True)
class Deployment:
    """What a client does besides: random crops of public and private images, encodings rounded to grey ``levels``."""

    public_crops: Cropping | None = None
    private_crops: Cropping | None = None
    levels: int | None = None


class Publication(NamedTuple):
    """``observation`` is the attacker's; ``private`` and ``mixing`` are the truth, for scoring only."""

    observation: EncodingObservation
    private: Batch
    mixing: Mixing

    @property
    def members(self) -> Tensor:
        """Which public images are in each encoding."""
        return self.mixing.indices[:, self.observation.private_per_encoding :] - len(self.private)

    @property
    def anchors(self) -> Tensor:
        """Which private image each encoding encrypts, the first of those in it."""
        return self.mixing.indices[:, 0]


def publish(
    scheme: Scheme,
    pools: Pools,
    count: int,
    *,
    seed: int,
    copies: int = 1,
    deployment: Deployment | None = None,
    classes: int | None = None,
) -> Publication:
    """``copies`` encryptions of ``count`` private images, drawn anew for every seed; crops differ from copy to copy.

    The keys are seeded so that a study can be repeated, which no deployment may do.
    """
    deployment = deployment or Deployment()
    if count > len(pools.private):
        raise InvalidCase(f"There are {len(pools.private)} private images, fewer than the {count} asked for.")
    generator = seeded(seed, "publication")
    private = pools.private[torch.randperm(len(pools.private), generator=generator)[:count]]
    classes = classes or int(pools.private.labels.max()) + 1
    keys = SeededKeys(generator)
    sets, mixings = [], []
    for _ in range(copies):
        used = private
        if deployment.private_crops is not None:
            used = Batch(deployment.private_crops(private.inputs, generator=generator), private.labels)
        public = pools.public
        if deployment.public_crops is not None:
            public = deployment.public_crops(public, generator=generator)
        encoded, secret = encrypt(scheme, used, classes=classes, public=public, keys=keys)
        sets.append(encoded)
        mixings.append(secret.mixing)
    images = torch.cat([encoded.images for encoded in sets])
    if deployment.levels is not None:
        images = (images * (deployment.levels - 1)).round() / (deployment.levels - 1)
    observation = EncodingObservation(
        EncodedSet(images, torch.cat([encoded.labels for encoded in sets])),
        scheme.k,
        scheme.private_per_encoding,
        scheme.signed,
        public=pools.public if scheme.public_per_encoding else None,
        auxiliary=pools.auxiliary,
    )
    return Publication(observation, private, stack_mixings(mixings))
