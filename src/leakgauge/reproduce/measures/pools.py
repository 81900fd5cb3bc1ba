"""What measures of encodings share: their images, what is published of them, and a network that guesses signs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from leakgauge.attacks.encodings.demasking import Demasker, DemaskerTraining, load_demasker
from leakgauge.encodings.crops import Cropping
from leakgauge.encodings.keys import SeededKeys
from leakgauge.encodings.schemes import Scheme, encrypt
from leakgauge.errors import InvalidCase
from leakgauge.protocol.encoding import EncodedSet, EncodingObservation, Mixing, stack_mixings
from leakgauge.randomness import seeded
from leakgauge.reproduce.run import data_key
from leakgauge.reproduce.table import Bench
from leakgauge.types import Batch


@dataclass(frozen=True)
class Pools:
    """Images of one kind in three disjoint parts: the client's, those that anybody has, and the attacker's own."""

    private: Batch
    public: Tensor
    auxiliary: Tensor


class PoolSource(ABC):
    """Which images of the dataset are whose; frozen dataclasses."""

    @abstractmethod
    def __call__(self, bench: Bench) -> Pools: ...


@dataclass(frozen=True)
class RandomPools(PoolSource):
    """Parts of the training images, in a random order."""

    private: int
    public: int
    auxiliary: int

    def __call__(self, bench: Bench) -> Pools:
        train = bench.data.train
        order = torch.randperm(len(train), generator=seeded(bench.seed, "pools"))
        # Of fewer images than asked for, the attacker's own are the ones that are missing.
        private, public, auxiliary = order[:-1].tensor_split((self.private, self.private + self.public))
        return Pools(train[private], train.inputs[public], train.inputs[auxiliary[: self.auxiliary]])


@dataclass(frozen=True)
class FirstPools(PoolSource):
    """Test images are private; the first training images are public, the next are the attacker's own."""

    public: int
    auxiliary: int

    def __call__(self, bench: Bench) -> Pools:
        train, wanted = bench.data.train.inputs, self.public + self.auxiliary
        if len(train) < wanted:
            raise InvalidCase(
                f"Scale {bench.scale} takes {wanted} training images, but there are {len(train)};"
                " add files to --data-root, or choose a smaller scale."
            )
        return Pools(bench.data.test, train[: self.public], train[self.public : wanted])


def keep_demasker(bench: Bench, training: DemaskerTraining, pools: PoolSource, k: int) -> Demasker:
    """A demasker for mixtures of k images of these pools: the one that the output folder holds, or a new one."""
    key = data_key((repr(training), str(k), repr(pools)), bench)
    path = bench.folder / f"demasker-{key}.safetensors"
    if not path.is_file():
        progress, generator = bench.begin("training the demasker"), seeded(bench.seed, "demasker")
        training(pools(bench).auxiliary, k, generator=generator, progress=progress).save(path)
    return load_demasker(path)


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
