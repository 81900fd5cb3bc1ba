"""What measures of encodings share: their images, a network that guesses signs, and how they tell of attacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.attacks.encodings.demasking import Demasker, DemaskerTraining, load_demasker
from leakgauge.errors import InvalidCase
from leakgauge.progress import Tick
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


def count_attacks(bench: Bench, total: int) -> Callable[[str], None]:
    """What is to be called as each of so many attacks begins."""
    progress = bench.begin("attacking")
    done = 0

    def begin(name: str) -> None:
        nonlocal done
        del name
        progress(Tick(done, min(1.0, done / total)))
        done += 1

    return begin
